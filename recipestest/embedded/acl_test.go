package embedded_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

const (
	read   = 1
	write  = 2
	create = 4
	remove = 8
	admin  = 16
	all    = 31
)

func TestEveryOperationNeedsItsPermission(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{InMemory: true}), hello{})
	for perm, path := range map[int32]string{read: "/read", write: "/write", create: "/create", remove: "/remove", admin: "/admin"} {
		a := c.must(t, opCreate, packet{}.string(path).buffer(nil).acl(perm, "world", "anyone").int32(0))
		require.Zero(t, a.code)

		code := func(needs int32, op int32, body packet) {
			t.Helper()
			want := int32(0)
			if needs&perm == 0 {
				want = codeNoAuth
			}
			require.Equal(t, want, c.must(t, op, body).code, path)
		}

		code(read, opGetData, packet{}.string(path).bool(false))
		code(read, opGetChildren, packet{}.string(path).bool(false))
		code(read, opGetChildren2, packet{}.string(path).bool(false))
		code(read, opCountChildren, packet{}.string(path))
		code(read, opCheck, packet{}.string(path).int32(-1))
		code(read|admin, opGetACL, packet{}.string(path))
		code(write, opSetData, packet{}.string(path).buffer(nil).int32(-1))
		code(create, opCreate, packet{}.create(path+"/x", nil, 0))
		code(all, opExists, packet{}.string(path).bool(false))
		code(all, opSync, packet{}.string(path))
		code(admin, opSetACL, packet{}.string(path).acl(perm, "world", "anyone").int32(-1))
	}

	// Deleting a node needs a permission on its parent.
	a := c.must(t, opCreate, packet{}.string("/p").buffer(nil).acl(create, "world", "anyone").int32(0))
	require.Zero(t, a.code)
	require.Zero(t, c.must(t, opCreate, packet{}.create("/p/x", nil, 0)).code)
	require.EqualValues(t, codeNoAuth, c.must(t, opDelete, packet{}.string("/p/x").int32(-1)).code)
	require.Zero(t, c.must(t, opDelete, packet{}.string("/remove").int32(-1)).code)
}

func TestDigestACLsExcludeOtherClients(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	owner, other := dial(t, s), dial(t, s)
	_, err := owner.Create("/early", nil, 0, zk.AuthACL(zk.PermAll))
	require.ErrorIs(t, err, zk.ErrInvalidACL, "the client has no identity yet")

	require.NoError(t, owner.AddAuth("digest", []byte("me:secret")))
	_, err = owner.Create("/mine", []byte("x"), 0, zk.AuthACL(zk.PermAll))
	require.NoError(t, err)
	_, err = owner.Create("/also", nil, 0, zk.DigestACL(zk.PermAll, "me", "secret"))
	require.NoError(t, err)

	for _, path := range []string{"/mine", "/also"} {
		_, _, err = other.Get(path)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		_, _, err = owner.Get(path)
		require.NoError(t, err)
		acl, _, err := owner.GetACL(path)
		require.NoError(t, err)
		require.Equal(t, zk.DigestACL(zk.PermAll, "me", "secret"), acl)
	}

	require.NoError(t, other.AddAuth("digest", []byte("me:wrong")))
	_, _, err = other.Get("/mine")
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.NoError(t, other.AddAuth("digest", []byte("me:secret")))
	_, _, err = other.Get("/mine")
	require.NoError(t, err)
}

func TestHashesAreShownToAdministratorsOnly(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	owner, other := dial(t, s), dial(t, s)
	require.NoError(t, owner.AddAuth("digest", []byte("me:secret")))
	list := append(zk.DigestACL(zk.PermAll, "me", "secret"), zk.WorldACL(zk.PermRead)...)
	_, err := owner.Create("/mine", nil, 0, list)
	require.NoError(t, err)

	acl, _, err := owner.GetACL("/mine")
	require.NoError(t, err)
	require.Equal(t, list, acl)
	acl, _, err = other.GetACL("/mine")
	require.NoError(t, err)
	require.Equal(t, "me:x", acl[0].ID)
}

func TestAddressesGrantAccess(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]embedded.Config{"over TCP": {}, "in memory": {InMemory: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, start(t, cfg), hello{})
			for id, want := range map[string]int32{
				"127.0.0.1": 0, "127.0.0.0/8": 0, "127.0.0.1/32": 0, "0.0.0.0/0": 0,
				"10.0.0.1": codeNoAuth, "127.0.0.0/32": codeNoAuth,
			} {
				path := "/" + string(rune('a'+len(id)))
				a := c.must(t, opCreate, packet{}.string(path).buffer(nil).acl(all, "ip", id).int32(0))
				require.Zero(t, a.code, id)
				require.Equal(t, want, c.must(t, opGetData, packet{}.string(path).bool(false)).code, id)
				require.Zero(t, c.must(t, opDelete, packet{}.string(path).int32(-1)).code)
			}
		})
	}
}

func TestInvalidACLsAreRefused(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{InMemory: true}), hello{})
	for _, entry := range [][2]string{
		{"world", "someone"}, {"bogus", "x"}, {"super", "x"}, {"sasl", "x"}, {"x509", "x"}, {"", ""},
		{"digest", "user"}, {"digest", "user:"}, {"digest", "a:b:c"}, {"digest", ""},
		{"ip", "nowhere"}, {"ip", "1.2.3"}, {"ip", "1.2.3.4/33"}, {"ip", "1.2.3.4/"}, {"ip", "::1"},
		{"auth", ""},
	} {
		a := c.must(t, opCreate, packet{}.string("/x").buffer(nil).acl(all, entry[0], entry[1]).int32(0))
		require.EqualValues(t, codeInvalidACL, a.code, entry)
	}
	for _, id := range []string{"a:b", "a:b:", ":b"} {
		path := "/" + id
		a := c.must(t, opCreate, packet{}.string(path).buffer(nil).acl(all, "digest", id).int32(0))
		require.Zero(t, a.code, id)
	}
}

func TestDuplicateEntriesAreDropped(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{InMemory: true}), hello{})
	c.must(t, opCreate, packet{}.string("/x").buffer(nil).
		int32(3).int32(all).string("world").string("anyone").
		int32(all).string("world").string("anyone").
		int32(read).string("world").string("anyone").int32(0))
	require.EqualValues(t, 2, c.must(t, opGetACL, packet{}.string("/x")).int32())
}

func TestWhoAmI(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, embedded.Config{InMemory: true}), hello{})
	auth := func(scheme, credentials string) {
		a := c.must(t, opAuth, packet{}.int32(0).string(scheme).buffer([]byte(credentials)))
		require.Zero(t, a.code)
		require.Zero(t, a.zxid)
	}

	auth("digest", "me:secret")
	auth("digest", "me:secret")
	auth("digest", "you:secret")
	auth("ip", "")

	a := c.must(t, opWhoAmI, nil)
	var ids []string
	for range a.int32() {
		ids = append(ids, a.string()+" "+a.string())
	}
	require.Equal(t, []string{"ip 127.0.0.1", "digest me", "digest you"}, ids)
}

func TestFailedAuthenticationEndsTheConnectionAndNotTheSession(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	for _, scheme := range []string{"bogus", "world", "auth", "super", ""} {
		c := connect(t, s, hello{})
		a := c.must(t, opAuth, packet{}.int32(0).string(scheme).buffer([]byte("x")))
		require.EqualValues(t, codeAuthFailed, a.code)
		_, err := c.receive()
		require.ErrorIs(t, err, io.EOF)
		require.NotZero(t, connect(t, s, hello{session: c.session, password: c.password}).session)
	}
}

func TestMembersRefuseWritesByThemselves(t *testing.T) {
	requests := []struct {
		name string
		op   int32
		body packet
		code int32 // of an eager refusal; 0 if the leader is asked
	}{
		{"create", opCreate, packet{}.create("/closed/x", nil, 0), codeNoAuth},
		{"create2", opCreate2, packet{}.create("/closed/x", nil, 0), codeNoAuth},
		{"delete of no node", opDelete, packet{}.string("/closed/x").int32(-1), codeNoAuth},
		{"setData", opSetData, packet{}.string("/closed").buffer(nil).int32(-1), codeNoAuth},
		{"setACL", opSetACL, packet{}.string("/closed").open().int32(-1), codeNoAuth},
		{"invalid list", opCreate, packet{}.string("/x").buffer(nil).acl(all, "none", "").int32(0), codeInvalidACL},
		{"invalid list to set", opSetACL, packet{}.string("/none").acl(all, "none", "").int32(-1), codeInvalidACL},

		{"delete below no node", opDelete, packet{}.string("/closed/x/y").int32(-1), 0},
		{"permission", opSetData, packet{}.string("/open").buffer(nil).int32(-1), 0},
		{"system node", opDelete, packet{}.string("/zookeeper").int32(-1), 0},
		{"bad path", opCreate, packet{}.create("x", nil, 0), 0},
		{"broken", opCreate, packet{}.string("/closed/x"), 0},
		{"createContainer", opCreateContainer, packet{}.create("/closed/x", nil, 4), 0},
		{"multi", opMulti, append(packet{}.part(opDelete).string("/closed/x").int32(-1), packet{}.end()...), 0},
	}
	for name, change := range map[string]func(*embedded.Follower){
		"lags":     func(f *embedded.Follower) { f.Lag(lag) },
		"isolated": (*embedded.Follower).Isolate,
		"deposed":  (*embedded.Follower).Depose,
	} {
		for _, eager := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " eager ", eager), func(t *testing.T) {
				t.Parallel()
				bubble(t, embedded.Config{EagerACL: eager}, func(t *testing.T, s *embedded.Server) {
					leads, f := connect(t, s, hello{}), s.Follower()
					require.Zero(t, leads.must(t, opAuth, packet{}.int32(0).string("digest").buffer([]byte("me:secret"))).code)
					require.Zero(t, leads.must(t, opCreate, packet{}.string("/closed").buffer(nil).acl(all, "auth", "").int32(0)).code)
					require.Zero(t, leads.must(t, opCreate, packet{}.create("/open", nil, 0)).code)
					require.Zero(t, leads.must(t, opSetACL, packet{}.string("/").acl(all, "auth", "").int32(-1)).code)
					clients := make([]*wireClient, len(requests))
					for i := range clients {
						clients[i] = connectTo(t, f, hello{})
					}
					change(f)

					// The leader's list changes, and the member's does not yet.
					require.Zero(t, leads.must(t, opSetACL, packet{}.string("/closed").open().int32(-1)).code)
					for i, r := range requests {
						c := clients[i]
						require.NoError(t, c.send(opSetData, packet{}.string("/open").buffer(nil).int32(-1)))
						require.NoError(t, c.send(r.op, r.body))
						answered := later(func() *answer { a, _ := c.receive(); return a })
						if !eager || r.code == 0 {
							requireNothing(t, answered)
							continue
						}
						a := receive(t, answered)
						require.Equal(t, []any{int32(2), int64(0), r.code}, []any{a.xid, a.zxid, a.code}, r.name)
					}
				})
			})
		}
	}

	// A standalone server does so, too. Otherwise the refusal is a transaction.
	for _, eager := range []bool{false, true} {
		c := connect(t, start(t, embedded.Config{InMemory: true, EagerACL: eager}), hello{})
		a := c.must(t, opSetACL, packet{}.string("/none").acl(all, "none", "").int32(-1))
		require.EqualValues(t, codeInvalidACL, a.code)
		require.Equal(t, eager, a.zxid == 0)
	}
}
