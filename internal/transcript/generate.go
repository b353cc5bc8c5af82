package transcript

import (
	"math"
	"math/bits"

	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

var badPathList = []string{
	"/a/", "/a//c", "/a/./c", "/a/..", "/a/c/..", "/a/\x01", "/a/\x00", "/a/\uf000", "/a/\ufff9", "/a/\u0085",
	"/a/\x1f", "/a/\x7f", "/a/\ue000", "/a/\U0001f600", "/a/\xff", "/a/ü", "noslash", "//", "/a/c/e/", "/.", "/a/.c",
}

var badEntryList = []entry{
	{31, "world", "someone"},
	{31, "world", ""},
	{31, "digest", "alice"},
	{31, "digest", "a:b:c"},
	{31, "digest", ":b"},
	{31, "digest", "a:"},
	{31, "digest", ""},
	{31, "digest", "a:b:"},
	{31, "ip", "300.1.2.3"},
	{31, "ip", "10.1.2.3/33"},
	{31, "ip", "10.1.2.3/-1"},
	{31, "ip", "10.1.2.3/"},
	{31, "ip", "10.1.2"},
	{31, "ip", "::1"},
	{31, "ip", ""},
	{31, "unknown", "x"},
	{31, "", ""},
	{31, "super", ""},
	{31, "sasl", "x"},
	{31, "x509", "x"},
}

// There are few paths, so that requests often hit the same nodes.
var (
	paths = oneOf([]string{
		"/a", "/a", "/a", "/b", "/b", "/a/c", "/a/c", "/a/c", "/a/d", "/a/c/e", "/a/c/e", "/", "/a/c/e/f", "/b/c",
		"/a/s-0000000000", "/a/s-0000000001", "/b/0000000000", "/a/s-0000000000/x",
	})
	prefixes    = oneOf([]string{"/a/s-", "/b/", "/a/c/e", "/s-"})
	badPaths    = oneOf(badPathList)
	createFlags = oneOf([]int32{0, 0, 0, 1, 1, 2, 3})
	oddFlags    = oneOf([]int32{0, 1, 2, 3, 4, 5, 6, 7, -1})
	data        = oneOf([][]byte{nil, {}, []byte("x"), []byte("yy")})
	versions    = oneOf([]int32{-1, -1, -1, 0, 0, 1, 1, 2, 3, -2, math.MaxInt32})
	ttls        = oneOf([]int64{3_600_000, 1<<40 - 1, 1 << 40, 0, -1, math.MaxInt64})
	modes       = oneOf([]int32{0, 1, 1, 2, 3, 4, 5, -1})
	perms       = oneOf([]int32{31, 31, 1, 1, 2, 4, 8, 16, 30, 29, 27, 23, 15, 0, 32, -1})
)

// oneOf draws every element with the same probability. The library's own generators favour the
// first elements.
func oneOf[T any](list []T) *rapid.Generator[T] {
	// Bits are drawn with equal chances, and a few more than needed even out the remainder.
	return rapid.Custom(func(t *rapid.T) T {
		n := 0
		for range bits.Len(uint(len(list))) + 3 {
			n <<= 1
			if rapid.Bool().Draw(t, "bit") {
				n++
			}
		}
		return list[n%len(list)]
	})
}

// oneIn returns true once in n draws on average. Counter-examples shrink towards false.
func oneIn(t *rapid.T, n int) bool {
	odds := make([]bool, n)
	odds[n-1] = true
	return oneOf(odds).Draw(t, "chance")
}

var somePath = rapid.Custom(func(t *rapid.T) string {
	if oneIn(t, 16) {
		return badPaths.Draw(t, "bad path")
	}
	return paths.Draw(t, "path")
})

var (
	goodEntries = oneOf([]entry{
		{scheme: "world", id: "anyone"},
		{scheme: "auth"},
		{scheme: "digest", id: digest("alice:a")},
		{scheme: "digest", id: digest("bob:b")},
		{scheme: "digest", id: digest("carol:c")},
		{scheme: "ip", id: "{ip}"},
		{scheme: "ip", id: "{ip}/8"},
		{scheme: "ip", id: "10.1.2.3"},
		{scheme: "ip", id: "0.0.0.0/0"},
		{scheme: "auth", id: "ignored"},
	})
	badEntries = oneOf(badEntryList)
	entries    = rapid.Custom(func(t *rapid.T) entry {
		if oneIn(t, 12) {
			return badEntries.Draw(t, "bad entry")
		}
		e := goodEntries.Draw(t, "entry")
		e.perms = perms.Draw(t, "perms")
		return e
	})
	acls = rapid.Custom(func(t *rapid.T) []entry {
		switch {
		case !oneIn(t, 2):
			return openACL
		case oneIn(t, 10):
			return []entry{}
		}
		return rapid.SliceOfN(entries, 1, oneOf([]int{1, 1, 3}).Draw(t, "length")).Draw(t, "acl")
	})
)

var creates = rapid.Custom(func(t *rapid.T) request {
	r := request{
		op:   oneOf([]zkwire.Op{zkwire.OpCreate, zkwire.OpCreate, zkwire.OpCreate2, zkwire.OpCreateContainer, zkwire.OpCreateTTL}).Draw(t, "op"),
		path: somePath.Draw(t, "path"),
		data: data.Draw(t, "data"),
		acl:  acls.Draw(t, "acl"),
	}
	switch {
	case oneIn(t, 10):
		r.flags = oddFlags.Draw(t, "flags")
	case r.op == zkwire.OpCreateContainer:
		r.flags = 4
	case r.op == zkwire.OpCreateTTL:
		r.flags = oneOf([]int32{5, 6}).Draw(t, "flags")
	default:
		r.flags = createFlags.Draw(t, "flags")
	}
	if r.op == zkwire.OpCreateTTL {
		r.ttl = ttls.Draw(t, "ttl")
		if r.flags != 5 && r.flags != 6 {
			r.ttl = max(r.ttl, 0) // with a negative one the real server shuts down
		}
	}
	if r.flags == 2 || r.flags == 3 || r.flags == 6 {
		r.path = prefixes.Draw(t, "prefix")
	}
	return r
})

// writes draws parts of a transaction.
var writes = rapid.Custom(func(t *rapid.T) request {
	op := oneOf([]zkwire.Op{zkwire.OpCreate, zkwire.OpDelete, zkwire.OpSetData, zkwire.OpCheck}).Draw(t, "op")
	if op == zkwire.OpCreate {
		return creates.Draw(t, "create")
	}
	return request{
		op: op, path: somePath.Draw(t, "path"), data: data.Draw(t, "data"), version: versions.Draw(t, "version"),
	}
})

var reads = rapid.Custom(func(t *rapid.T) request {
	return request{
		op:    oneOf([]zkwire.Op{zkwire.OpGetData, zkwire.OpGetChildren}).Draw(t, "op"),
		path:  somePath.Draw(t, "path"),
		watch: rapid.Bool().Draw(t, "watch"),
	}
})

var requests = rapid.Custom(func(t *rapid.T) request {
	op := oneOf([]zkwire.Op{
		zkwire.OpCreate, zkwire.OpCreate, zkwire.OpCreate, zkwire.OpCreate, zkwire.OpDelete, zkwire.OpDelete, zkwire.OpDelete, zkwire.OpSetData, zkwire.OpSetData, zkwire.OpSetACL, zkwire.OpSetACL,
		zkwire.OpMulti, zkwire.OpMulti, zkwire.OpMulti, zkwire.OpCheck,
		zkwire.OpExists, zkwire.OpExists, zkwire.OpGetData, zkwire.OpGetData, zkwire.OpGetChildren, zkwire.OpGetChildren2, zkwire.OpGetACL, zkwire.OpSync, zkwire.OpMultiRead,
		zkwire.OpAddWatch, zkwire.OpAddWatch, zkwire.OpRemoveWatches, zkwire.OpCheckWatches, zkwire.OpSetWatches, zkwire.OpSetWatches2,
		zkwire.OpGetEphemerals, zkwire.OpCountChildren, zkwire.OpWhoAmI,
	}).Draw(t, "op")
	r := request{op: op}
	switch op {
	case zkwire.OpCreate:
		return creates.Draw(t, "create")
	case zkwire.OpMulti:
		r.parts = rapid.SliceOfN(writes, 0, 5).Draw(t, "parts")
		return r
	case zkwire.OpMultiRead:
		r.parts = rapid.SliceOfN(reads, 0, 4).Draw(t, "parts")
		return r
	case zkwire.OpSetWatches, zkwire.OpSetWatches2:
		r.since = oneOf([]int{0, 2, 4, 8, 12, 16, 24, math.MaxInt}).Draw(t, "since")
		for i := range r.watches {
			r.watches[i] = rapid.SliceOfN(paths, 0, 3).Draw(t, "watches")
		}
		return r
	}
	r.path = somePath.Draw(t, "path")
	switch op {
	case zkwire.OpSetData:
		r.data = data.Draw(t, "data")
		r.version = versions.Draw(t, "version")
	case zkwire.OpDelete, zkwire.OpCheck:
		r.version = versions.Draw(t, "version")
	case zkwire.OpSetACL:
		r.acl = acls.Draw(t, "acl")
		r.version = versions.Draw(t, "version")
	case zkwire.OpExists, zkwire.OpGetData, zkwire.OpGetChildren, zkwire.OpGetChildren2:
		r.watch = rapid.Bool().Draw(t, "watch")
	case zkwire.OpAddWatch, zkwire.OpRemoveWatches, zkwire.OpCheckWatches:
		r.mode = modes.Draw(t, "mode")
	}
	return r
})

var steps = rapid.Custom(func(t *rapid.T) Step {
	s := Step{session: oneOf([]int{0, 1, 2}).Draw(t, "session")}
	if oneIn(t, 7) {
		s.does = oneOf([]action{
			doAuth, doAuth, doAuth, doReconnect, doClose, doReconnect, doWrongPassword, doReturn, doFromFuture,
		}).Draw(t, "action")
	}
	switch s.does {
	case doRequests:
		s.requests = rapid.SliceOfN(requests, 1, 3).Draw(t, "requests")
		for i, r := range s.requests {
			if r.op == zkwire.OpSetACL { // the real server may check later requests against the old list
				s.requests = s.requests[:i+1]
				break
			}
			if r.op == zkwire.OpCheck { // 3.9 does not know it, and ends the connection before it answers earlier requests
				s.requests = []request{r}
				break
			}
		}
	case doAuth:
		s.scheme = oneOf([]string{"digest", "digest", "digest", "digest", "ip", "unknown", ""}).Draw(t, "scheme")
		s.secret = oneOf([]string{"alice:a", "bob:b", "alice:wrong", "alice", ""}).Draw(t, "secret")
	}
	return s
})

// Sequences draws the steps of a run. Half of them start with a few nodes and watches.
var Sequences = rapid.Custom(func(t *rapid.T) []Step {
	var list []Step
	if rapid.Bool().Draw(t, "set up") {
		list = setUp(t)
	}
	for range 4 { // the library draws short lists
		list = append(list, rapid.SliceOfN(steps, 0, 20).Draw(t, "steps")...)
	}
	return list
})

func setUp(t *rapid.T) []Step {
	var begin []request
	for _, path := range []string{"/a", "/a/c", "/b", "/a/c/e"} {
		begin = append(begin, request{op: zkwire.OpCreate, path: path, acl: acls.Draw(t, "acl")})
	}
	return []Step{
		{session: 0, requests: begin},
		{session: 1, does: doAuth, scheme: "digest", secret: "alice:a"},
		{session: 1, requests: []request{
			{op: zkwire.OpAddWatch, path: "/a", mode: 1},
			{op: zkwire.OpAddWatch, path: "/b"},
			{op: zkwire.OpGetChildren, path: "/a", watch: true},
		}},
		{session: 2, requests: []request{
			{op: zkwire.OpGetData, path: "/a/c", watch: true},
			{op: zkwire.OpGetChildren2, path: "/a/c", watch: true},
			{op: zkwire.OpExists, path: "/a/d", watch: true},
		}},
	}
}
