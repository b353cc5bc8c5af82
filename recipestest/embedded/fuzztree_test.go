package embedded_test

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A sketch is a simple model of the tree: the nodes below the root, by path.
type sketch map[string]sketchNode

type sketchNode struct {
	data      string
	version   int32
	ephemeral bool
}

func (s sketch) children(parent string) (names []string) {
	for p := range s {
		if path.Dir(p) == parent {
			names = append(names, path.Base(p))
		}
	}
	slices.Sort(names)
	return names
}

// mayCreate returns the code of a create that is not sequential.
func (s sketch) mayCreate(p string, sequential bool) int32 {
	parent, there := s[path.Dir(p)]
	_, exists := s[p]
	switch {
	case !there && path.Dir(p) != "/":
		return codeNoNode
	case parent.ephemeral:
		return codeEphemeralParent
	case exists && !sequential:
		return codeNodeExists
	}
	return 0
}

func (s sketch) mayChange(p string, version int32) int32 {
	n, there := s[p]
	switch {
	case !there:
		return codeNoNode
	case version != -1 && version != n.version:
		return codeBadVersion
	}
	return 0
}

func (s sketch) mayDelete(p string, version int32) int32 {
	code := s.mayChange(p, version)
	if code == 0 && len(s.children(p)) > 0 {
		return codeNotEmpty
	}
	return code
}

// A sketcher sends the same requests to a server and to a sketch.
type sketcher struct {
	t      *testing.T
	server *embedded.Server
	client *wireClient
	sketch sketch
	script []byte // what is left of it
}

func (k *sketcher) next(n int) int {
	if len(k.script) == 0 {
		return 0
	}
	b := k.script[0]
	k.script = k.script[1:]
	return int(b) % n
}

func (k *sketcher) path() string {
	return []string{"/a", "/b", "/a/a", "/a/b", "/b/a", "/a/a/a", "/c/c"}[k.next(7)]
}

func (k *sketcher) version() int32 { return []int32{-1, 0, 1}[k.next(3)] }

func (k *sketcher) create() {
	p, flags := k.path(), int32(k.next(4))
	data := strings.Repeat("x", k.next(3))
	a := k.client.must(k.t, opCreate, packet{}.create(p, []byte(data), flags))
	code := k.sketch.mayCreate(p, flags&2 != 0)
	require.Equal(k.t, code, a.code, "create %s, flags %d", p, flags)
	if code != 0 {
		return
	}
	name := a.string()
	if flags&2 == 0 {
		require.Equal(k.t, p, name)
	} else {
		require.Regexp(k.t, "^"+p+`\d{10}$`, name)
		require.NotContains(k.t, k.sketch, name)
	}
	k.sketch[name] = sketchNode{data: data, ephemeral: flags&1 != 0}
}

func (k *sketcher) delete() {
	p, version := k.path(), k.version()
	a := k.client.must(k.t, opDelete, packet{}.string(p).int32(version))
	code := k.sketch.mayDelete(p, version)
	require.Equal(k.t, code, a.code, "delete %s, version %d", p, version)
	if code == 0 {
		delete(k.sketch, p)
	}
}

func (k *sketcher) set() {
	p, version, data := k.path(), k.version(), strings.Repeat("y", k.next(3))
	a := k.client.must(k.t, opSetData, packet{}.string(p).buffer([]byte(data)).int32(version))
	code := k.sketch.mayChange(p, version)
	require.Equal(k.t, code, a.code, "set %s, version %d", p, version)
	if code == 0 {
		n := k.sketch[p]
		n.data, n.version = data, n.version+1
		k.sketch[p] = n
	}
}

// multi creates one node and deletes another, or does neither.
func (k *sketcher) multi() {
	made, gone, version := k.path(), k.path(), k.version()
	a := k.client.must(k.t, opMulti, packet{}.part(opCreate).create(made, nil, 0).part(opDelete).string(gone).int32(version).end())
	after := maps.Clone(k.sketch)
	failed := after.mayCreate(made, false) != 0
	if !failed {
		after[made] = sketchNode{}
		failed = after.mayDelete(gone, version) != 0
		delete(after, gone)
	}
	require.Zero(k.t, a.code)
	require.Equal(k.t, failed, a.int32() == -1, "create %s and delete %s, version %d", made, gone, version)
	if !failed {
		k.sketch = after
	}
}

// expire ends the session, and begins another one.
func (k *sketcher) expire() {
	require.True(k.t, k.server.ExpireSession(k.client.session))
	k.client = connect(k.t, k.server, hello{})
	maps.DeleteFunc(k.sketch, func(_ string, n sketchNode) bool { return n.ephemeral })
}

// compare holds the server's tree against the sketch.
func (k *sketcher) compare() {
	var visit func(dir string)
	visit = func(dir string) {
		got := k.client.must(k.t, opGetChildren, packet{}.string(dir).bool(false)).strings()
		got = slices.DeleteFunc(got, func(name string) bool { return dir == "/" && name == "zookeeper" })
		slices.Sort(got)
		require.Equal(k.t, fmt.Sprint(k.sketch.children(dir)), fmt.Sprint(got), "children of %s", dir)
		for _, name := range got {
			p := path.Join(dir, name)
			a := k.client.must(k.t, opGetData, packet{}.string(p).bool(false))
			data, st := string(a.buffer()), a.stat()
			require.Equal(k.t, k.sketch[p], sketchNode{data, st.version, st.owner != 0}, p)
			require.EqualValues(k.t, len(k.sketch.children(p)), st.children, p)
			require.EqualValues(k.t, len(data), st.length, p)
			visit(p)
		}
	}
	visit("/")
}

// FuzzTree sends a sequence of requests. The tree must be that of a simple model. A follower must
// show what the leader had when its lag began, and what the leader has after a sync without a lag.
func FuzzTree(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x00\x00\x01\x00\x02\x01\x01\x02\x00\x00\x02\x01\x00\x00"))         // create two, set, delete
	f.Add([]byte("\x00\x00\x02\x00\x00\x00\x03\x00\x00\x01\x01\x00\x04\x05\x00\x01\x00")) // sequential nodes, an expiry, a lag
	f.Add([]byte("\x05\x00\x00\x00\x00\x03\x01\x00\x00\x03\x02\x01\x00\x05\x04"))         // transactions while the follower lags
	f.Fuzz(func(t *testing.T, script []byte) {
		script = script[:min(len(script), 200)]
		s := start(t, embedded.Config{InMemory: true})
		follower := s.Follower()
		reader := connectTo(t, follower, hello{})
		k := &sketcher{t: t, server: s, client: connect(t, s, hello{}), sketch: sketch{}, script: script}
		var frozen []string // the follower's tree while it lags
		catchUp := func() {
			if frozen != nil {
				require.Equal(t, frozen, walk(t, reader), "the follower does not lag")
			}
			follower.Lag(0)
			frozen = nil
			reader.must(t, opSync, packet{}.string("/"))
			require.Equal(t, walk(t, k.client), walk(t, reader), "the follower is not as the leader")
		}

		for len(k.script) > 0 {
			switch k.next(6) {
			case 0:
				k.create()
			case 1:
				k.delete()
			case 2:
				k.set()
			case 3:
				k.multi()
			case 4:
				k.expire()
			case 5:
				if frozen == nil {
					frozen = walk(t, reader)
					follower.Lag(time.Hour)
				} else {
					catchUp()
				}
			}
		}
		catchUp()
		k.compare()
	})
}
