package differential_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each case covers behaviour that clients depend on and that is easily got wrong. A case that fails
// says more than a failure of the random steps.
func TestCasesHaveTheSameEffects(t *testing.T) {
	p := newPair(t)
	for _, c := range slices.Concat(cases, versionCases) {
		t.Run(c.name, func(t *testing.T) { p.requireNoDifference(t, c.steps) })
	}
}

// Without this test the one above might pass as no case shows a difference.
func TestServersOfDifferentVersionsDiffer(t *testing.T) {
	p := newPair(t)
	p.version = map[string]string{"3.8": "3.9", "3.9": "3.8"}[p.version]
	for _, c := range versionCases {
		t.Run(c.name, func(t *testing.T) {
			diff, err := p.difference(c.steps)
			require.NoError(t, err)
			require.NotEmpty(t, diff)
		})
	}
}

type namedCase struct {
	name  string
	steps []step
}

var cases = []namedCase{
	{"identities have no order", []step{
		auth(0, "digest", "alice:a"),
		auth(0, "digest", "bob:b"),
		auth(0, "digest", "bob:b"),
		auth(0, "ip", "ignored"),
		on(0, request{op: opWhoAmI}, create("/a", allowing(permAll, "auth", ""))),
		on(0, request{op: opGetACL, path: "/a"}),
		on(1, request{op: opGetData, path: "/a"}),
	}},
	{"a refused identity ends the connection and not the session", []step{
		on(0, ephemeral("/a"), request{op: opGetData, path: "/a", watch: true}),
		auth(0, "unknown", "x"),
		on(1, setData("/a", "x")),
		on(0, request{op: opGetEphemerals, path: "/"}),
	}},
	{"a time to live needs the flags that ask for it", []step{
		on(0,
			request{op: opCreateTTL, path: "/a", acl: openACL, ttl: 5},
			request{op: opCreateTTL, path: "/a", acl: openACL, flags: 5, ttl: 0},
			request{op: opCreateTTL, path: "/a", acl: openACL, flags: 5, ttl: 1 << 40},
			request{op: opCreate2, path: "/a", acl: openACL, flags: 5},
			request{op: opCreateTTL, path: "/a/missing-", acl: openACL, flags: 6, ttl: 1<<40 - 1},
			request{op: opCreateTTL, path: "/a-", acl: openACL, flags: 6, ttl: 1<<40 - 1}),
	}},
	{"a transaction fails as a whole, whichever part fails", []step{
		on(0, create("/a", openACL)),
		on(0, multi(create("/b", openACL), setData("/a", "x"), create("/a", openACL), remove("/b"))),
		on(0, multi(request{op: opCheck, path: "/a", version: 1}, create("/b", openACL))),
		on(0, multi(create("/b", openACL), remove("/missing"))),
		on(0, multi(), multi(create("/b", openACL), create("/b/c", openACL), remove("/b/c"), remove("/b"))),
		on(0, request{op: opGetChildren2, path: "/"}),
	}},
	{"a transaction's sequence numbers count its own nodes", []step{
		on(0, create("/a", openACL)),
		on(0, multi(sequential("/a/s-"), sequential("/a/s-"), remove("/a/s-0000000000"), sequential("/a/"))),
		on(0, sequential("/a/"), request{op: opGetChildren2, path: "/a"}),
	}},
	{"an ephemeral node cannot have children, not even within its transaction", []step{
		on(0, ephemeral("/a"), create("/a/c", openACL)),
		on(0, multi(ephemeral("/b"), create("/b/c", openACL))),
	}},
	{"events precede the answer that shows the change, one per watcher and change", []step{
		on(0, create("/a", openACL)),
		on(0,
			request{op: opExists, path: "/a/c", watch: true},
			request{op: opGetChildren, path: "/a", watch: true},
			request{op: opGetData, path: "/a", watch: true}),
		on(1, request{op: opAddWatch, path: "/a", mode: 1}, request{op: opAddWatch, path: "/a/c", mode: 0}),
		on(0, create("/a/c", openACL), setData("/a", "x"), setData("/a", "y"), remove("/a/c"), remove("/a")),
	}},
	{"a transaction's events come in the order of its parts", []step{
		on(0, create("/a", openACL), request{op: opAddWatch, path: "/", mode: 1}),
		on(1, request{op: opGetChildren, path: "/a", watch: true}, request{op: opExists, path: "/b", watch: true}),
		on(0, multi(create("/a/c", openACL), create("/b", openACL), setData("/a", "x"), remove("/a/c"), remove("/b"))),
	}},
	{"a one-time watch replaces a persistent one", []step{
		on(0, create("/a", openACL), request{op: opAddWatch, path: "/a"}, request{op: opGetData, path: "/a", watch: true}),
		on(1, setData("/a", "x"), setData("/a", "y")),
		on(0, request{op: opCheckWatches, path: "/a", mode: 2}, request{op: opCheckWatches, path: "/a", mode: 1}),
		on(0, request{op: opRemoveWatches, path: "/a", mode: 3}, request{op: opRemoveWatches, path: "/a", mode: 3}),
	}},
	{"checkWatches finds the watches of other clients, removeWatches does not", []step{
		on(0, request{op: opExists, path: "/a", watch: true}),
		on(1, request{op: opCheckWatches, path: "/a", mode: 2}, request{op: opRemoveWatches, path: "/a", mode: 2}),
		on(0, request{op: opRemoveWatches, path: "/a", mode: 2}),
	}},
	{"a resumed session gets the events that it missed", []step{
		on(0, create("/a", openACL), create("/a/c", openACL), create("/b", openACL)),
		on(1, setData("/b", "x"), remove("/a/c")),
		{session: 0, does: doReconnect},
		on(0, request{op: opSetWatches2, since: 3, watches: [5][]string{
			{"/a", "/a/c", "/b"}, {"/b", "/missing"}, {"/a", "/b", "/a/c"}, {"/a"}, {"/b"},
		}}),
		on(1, create("/missing", openACL), create("/b/c", openACL), setData("/b", "x"), setData("/a", "y")),
	}},
	{"watches end with the connection, identities too", []step{
		auth(0, "digest", "alice:a"),
		on(0, create("/a", allowing(permAll, "auth", "")), request{op: opGetData, path: "/a", watch: true}),
		{session: 0, does: doReconnect},
		on(0, setData("/a", "x"), request{op: opWhoAmI}),
		auth(0, "digest", "alice:a"),
		on(0, setData("/a", "x")),
	}},
	{"a resume with a wrong password ends the session's connection", []step{
		on(0, ephemeral("/a"), request{op: opGetData, path: "/a", watch: true}),
		{session: 0, does: doWrongPassword},
		on(1, setData("/a", "x")),
		on(0, request{op: opGetData, path: "/a"}),
		{session: 0, does: doFromFuture},
		on(0, request{op: opGetData, path: "/a"}),
	}},
	{"closing a session deletes its nodes", []step{
		on(0, create("/a", openACL), ephemeral("/a/c"), ephemeral("/a/d")),
		on(1, request{op: opAddWatch, path: "/a", mode: 1}),
		on(2, request{op: opGetChildren, path: "/a", watch: true}),
		{session: 0, does: doClose},
		{session: 0, does: doReturn},
		on(1, request{op: opGetChildren2, path: "/a"}),
	}},
	{"a client gets no events of nodes that it may not read", []step{
		auth(0, "digest", "alice:a"),
		on(0, create("/a", openACL), create("/a/c", allowing(permAll, "auth", ""))),
		on(1, request{op: opAddWatch, path: "/a", mode: 1}, request{op: opExists, path: "/a/c", watch: true}),
		on(0, setData("/a/c", "x"), create("/a/c/e", openACL), remove("/a/c/e"), remove("/a/c")),
	}},
	{"every operation needs its own permission", []step{
		auth(0, "digest", "alice:a"),
		on(0,
			create("/r", allowing(1, "world", "anyone")), create("/w", allowing(2, "world", "anyone")),
			create("/c", allowing(4, "world", "anyone")), create("/d", allowing(8, "world", "anyone")),
			create("/a", allowing(16, "world", "anyone"))),
		everything(1, "/r"), everything(1, "/w"), everything(1, "/c"), everything(1, "/d"), everything(1, "/a"),
		checkOf(1, "/r"), checkOf(1, "/w"), checkOf(1, "/c"), checkOf(1, "/d"), checkOf(1, "/a"),
	}},
	{"access control lists are checked entry by entry", []step{
		auth(0, "digest", "alice:a"),
		on(0, creationsWith(badEntryList)...),
	}},
	{"an access control list has a version of its own", []step{
		on(0, create("/a", openACL)),
		on(0, request{op: opSetACL, path: "/a", acl: openACL}),
		on(0, request{op: opSetACL, path: "/a", acl: openACL}),
		on(0, setData("/a", "x"), request{op: opGetACL, path: "/a"}),
	}},
	{"an unknown request ends the connection", []step{
		on(0, ephemeral("/a")),
		on(0, request{op: 99, path: "/a"}),
		on(0, request{op: opGetEphemerals, path: "/"}),
	}},
	{"paths are checked by writes and not by reads", []step{
		on(0, create("/a", openACL)),
		on(0, badPathRequests(opCreate)...), on(0, badPathRequests(opSetData)...), on(0, badPathRequests(opDelete)...),
		on(0, badPathRequests(opExists)...), on(0, badPathRequests(opGetACL)...),
		on(0, badPathRequests(opSetACL)...),
	}},
	{"a multiRead goes on after a failure", []step{
		on(0, create("/a", openACL), setData("/a", "x")),
		on(0, request{op: opMultiRead, parts: []request{
			{op: opGetData, path: "/a", watch: true}, {op: opGetData, path: "/missing"}, {op: opGetChildren, path: "/"},
		}}),
		on(1, setData("/a", "y")),
		on(0, request{op: opMultiRead}, request{op: opMultiRead, parts: []request{{op: opExists, path: "/a"}}}),
	}},
	{"null data stays null", []step{
		on(0, request{op: opCreate, path: "/a", acl: openACL}, request{op: opGetData, path: "/a"}),
		on(0, setData("/a", ""), request{op: opGetData, path: "/a"}),
	}},
}

// versionCases show what differs between 3.8 and 3.9, one thing each.
var versionCases = []namedCase{
	{"events carry the zxid of their transaction", []step{
		on(0, create("/a", openACL), request{op: opGetData, path: "/a", watch: true}),
		on(1, setData("/a", "x")),
	}},
	{"watches of several modes on a path", []step{
		on(0, create("/a", openACL), request{op: opAddWatch, path: "/a"}),
		on(0, request{op: opGetData, path: "/a", watch: true}, request{op: opGetChildren, path: "/a", watch: true}),
		on(0, request{op: opRemoveWatches, path: "/a", mode: 1}, request{op: opRemoveWatches, path: "/a", mode: 2}),
		on(0, request{op: opRemoveWatches, path: "/a", mode: 3}),
	}},
	{"persistent watches can be removed by themselves", []step{
		on(0, create("/a", openACL), request{op: opAddWatch, path: "/a"}, request{op: opAddWatch, path: "/a", mode: 1}),
		on(0, request{op: opRemoveWatches, path: "/a", mode: 4}),
		on(0, request{op: opCheckWatches, path: "/a", mode: 5}, request{op: opCheckWatches, path: "/a", mode: 4}),
	}},
	{"checkWatches and the watches of other clients", []step{
		on(0, request{op: opExists, path: "/a", watch: true}),
		on(1, request{op: opCheckWatches, path: "/a", mode: 2}),
	}},
	{"check outside of a transaction", []step{
		on(0, create("/a", openACL)),
		checkOf(0, "/a"),
		checkOf(0, "/a/"),
	}},
	{"checkWatches of a path without a slash", []step{
		on(0, request{op: opCheckWatches, path: "noslash", mode: 1}),
	}},
	{"create2 in a transaction", []step{
		on(0, multi(request{op: opCreate2, path: "/a", acl: openACL})),
	}},
	{"a transaction with flags that do not exist", []step{
		on(0, multi(remove("/missing"), request{op: opCreate, path: "/a", acl: openACL, flags: 7})),
	}},
	{"exists of a node that may not be read", []step{
		auth(0, "digest", "alice:a"),
		on(0, create("/a", allowing(permAll, "auth", ""))),
		on(1, request{op: opExists, path: "/a"}, request{op: opExists, path: "/missing"}),
	}},
}

func on(session int, requests ...request) step { return step{session: session, requests: requests} }

func auth(session int, scheme, secret string) step {
	return step{session: session, does: doAuth, scheme: scheme, secret: secret}
}

func allowing(perms int32, scheme, id string) []entry { return []entry{{perms, scheme, id}} }

func create(path string, acl []entry) request { return request{op: opCreate, path: path, acl: acl} }
func ephemeral(path string) request {
	return request{op: opCreate2, path: path, acl: openACL, flags: 1}
}
func sequential(path string) request {
	return request{op: opCreate, path: path, acl: openACL, flags: 2}
}
func remove(path string) request     { return request{op: opDelete, path: path, version: -1} }
func multi(parts ...request) request { return request{op: opMulti, parts: parts} }
func setData(path, data string) request {
	return request{op: opSetData, path: path, data: []byte(data), version: -1}
}

// everything returns a step with one request for each permission on a node.
func everything(session int, path string) step {
	return on(session,
		request{op: opExists, path: path}, request{op: opGetData, path: path}, request{op: opGetChildren2, path: path},
		request{op: opCountChildren, path: path}, request{op: opGetACL, path: path},
		setData(path, "x"), create(path+"/x", openACL), remove(path+"/x"),
		request{op: opSetACL, path: path, acl: openACL, version: 7})
}

// checkOf returns a step with a check outside of a transaction.
func checkOf(session int, path string) step {
	return on(session, request{op: opCheck, path: path, version: 7})
}

func creationsWith(list []entry) []request {
	requests := make([]request, 0, len(list)+1)
	for _, e := range list {
		requests = append(requests, create("/a", []entry{{permAll, "world", "anyone"}, e}), remove("/a"))
	}
	return append(requests, create("/a", nil))
}

func badPathRequests(op int32) []request {
	requests := make([]request, 0, len(badPathList))
	for _, path := range badPathList {
		requests = append(requests, request{op: op, path: path, acl: openACL, version: -1})
	}
	return requests
}
