package differential_test

import (
	"math"
	"math/bits"

	"pgregory.net/rapid"
)

var badPathList = []string{
	"/a/", "/a//c", "/a/./c", "/a/..", "/a/c/..", "/a/\x01", "/a/\x00", "/a/\uf000", "/a/\ufff9", "/a/\u0085",
	"/a/ü", "noslash", "//", "/a/c/e/", "/.", "/a/.c",
}

var badEntryList = []entry{
	{31, "world", "someone"},
	{31, "world", ""},
	{31, "digest", "alice"},
	{31, "digest", "a:b:c"},
	{31, "digest", ":b"},
	{31, "digest", "a:"},
	{31, "digest", ""},
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
			return nil
		}
		return rapid.SliceOfN(entries, 1, oneOf([]int{1, 1, 3}).Draw(t, "length")).Draw(t, "acl")
	})
)

var creates = rapid.Custom(func(t *rapid.T) request {
	r := request{
		op:   oneOf([]int32{opCreate, opCreate, opCreate2, opCreateContainer, opCreateTTL}).Draw(t, "op"),
		path: somePath.Draw(t, "path"),
		data: data.Draw(t, "data"),
		acl:  acls.Draw(t, "acl"),
	}
	switch {
	case oneIn(t, 10):
		r.flags = oddFlags.Draw(t, "flags")
	case r.op == opCreateContainer:
		r.flags = 4
	case r.op == opCreateTTL:
		r.flags = oneOf([]int32{5, 6}).Draw(t, "flags")
	default:
		r.flags = createFlags.Draw(t, "flags")
	}
	if r.op == opCreateTTL {
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
	op := oneOf([]int32{opCreate, opDelete, opSetData, opCheck}).Draw(t, "op")
	if op == opCreate {
		return creates.Draw(t, "create")
	}
	return request{
		op: op, path: somePath.Draw(t, "path"), data: data.Draw(t, "data"), version: versions.Draw(t, "version"),
	}
})

var reads = rapid.Custom(func(t *rapid.T) request {
	return request{
		op:    oneOf([]int32{opGetData, opGetChildren}).Draw(t, "op"),
		path:  somePath.Draw(t, "path"),
		watch: rapid.Bool().Draw(t, "watch"),
	}
})

var requests = rapid.Custom(func(t *rapid.T) request {
	op := oneOf([]int32{
		opCreate, opCreate, opCreate, opCreate, opDelete, opDelete, opDelete, opSetData, opSetData, opSetACL, opSetACL,
		opMulti, opMulti, opMulti, opCheck,
		opExists, opExists, opGetData, opGetData, opGetChildren, opGetChildren2, opGetACL, opSync, opMultiRead,
		opAddWatch, opAddWatch, opRemoveWatches, opCheckWatches, opSetWatches, opSetWatches2,
		opGetEphemerals, opCountChildren, opWhoAmI,
	}).Draw(t, "op")
	r := request{op: op}
	switch op {
	case opCreate:
		return creates.Draw(t, "create")
	case opMulti:
		r.parts = rapid.SliceOfN(writes, 0, 5).Draw(t, "parts")
		return r
	case opMultiRead:
		r.parts = rapid.SliceOfN(reads, 0, 4).Draw(t, "parts")
		return r
	case opSetWatches, opSetWatches2:
		r.since = oneOf([]int{0, 2, 4, 8, 12, 16, 24, math.MaxInt}).Draw(t, "since")
		for i := range r.watches {
			r.watches[i] = rapid.SliceOfN(paths, 0, 3).Draw(t, "watches")
		}
		return r
	}
	r.path = somePath.Draw(t, "path")
	switch op {
	case opSetData:
		r.data = data.Draw(t, "data")
		r.version = versions.Draw(t, "version")
	case opDelete, opCheck:
		r.version = versions.Draw(t, "version")
	case opSetACL:
		r.acl = acls.Draw(t, "acl")
		r.version = versions.Draw(t, "version")
	case opExists, opGetData, opGetChildren, opGetChildren2:
		r.watch = rapid.Bool().Draw(t, "watch")
	case opAddWatch, opRemoveWatches, opCheckWatches:
		r.mode = modes.Draw(t, "mode")
	}
	return r
})

var steps = rapid.Custom(func(t *rapid.T) step {
	s := step{session: oneOf([]int{0, 1, 2}).Draw(t, "session")}
	if oneIn(t, 7) {
		s.does = oneOf([]action{
			doAuth, doAuth, doAuth, doReconnect, doClose, doReconnect, doWrongPassword, doReturn, doFromFuture,
		}).Draw(t, "action")
	}
	switch s.does {
	case doRequests:
		s.requests = rapid.SliceOfN(requests, 1, 3).Draw(t, "requests")
		for i, r := range s.requests {
			if r.op == opSetACL { // the real server may check later requests against the old list
				s.requests = s.requests[:i+1]
				break
			}
			if r.op == opCheck { // 3.9 does not know it, and ends the connection before it answers earlier requests
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

// sequences draws the steps of a run. Half of them start with a few nodes and watches.
var sequences = rapid.Custom(func(t *rapid.T) []step {
	var list []step
	if rapid.Bool().Draw(t, "set up") {
		list = setUp(t)
	}
	for range 4 { // the library draws short lists
		list = append(list, rapid.SliceOfN(steps, 0, 20).Draw(t, "steps")...)
	}
	return list
})

func setUp(t *rapid.T) []step {
	var begin []request
	for _, path := range []string{"/a", "/a/c", "/b", "/a/c/e"} {
		begin = append(begin, request{op: opCreate, path: path, acl: acls.Draw(t, "acl")})
	}
	return []step{
		{session: 0, requests: begin},
		{session: 1, does: doAuth, scheme: "digest", secret: "alice:a"},
		{session: 1, requests: []request{
			{op: opAddWatch, path: "/a", mode: 1},
			{op: opAddWatch, path: "/b"},
			{op: opGetChildren, path: "/a", watch: true},
		}},
		{session: 2, requests: []request{
			{op: opGetData, path: "/a/c", watch: true},
			{op: opGetChildren2, path: "/a/c", watch: true},
			{op: opExists, path: "/a/d", watch: true},
		}},
	}
}
