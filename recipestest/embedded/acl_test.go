package embedded_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// all are the permissions.
const all = 31

func TestMembersRefuseWritesByThemselves(t *testing.T) {
	requests := []struct {
		name string
		op   zkwire.Op
		body packet
		code zkwire.Code // of an eager refusal; 0 if the leader is asked
	}{
		{"create", zkwire.OpCreate, packet{}.create("/closed/x", nil, 0), zkwire.CodeNoAuth},
		{"create2", zkwire.OpCreate2, packet{}.create("/closed/x", nil, 0), zkwire.CodeNoAuth},
		{"delete of no node", zkwire.OpDelete, packet{}.string("/closed/x").int32(-1), zkwire.CodeNoAuth},
		{"setData", zkwire.OpSetData, packet{}.string("/closed").buffer(nil).int32(-1), zkwire.CodeNoAuth},
		{"setACL", zkwire.OpSetACL, packet{}.string("/closed").open().int32(-1), zkwire.CodeNoAuth},
		{"invalid list", zkwire.OpCreate, packet{}.string("/x").buffer(nil).acl(all, "none", "").int32(0), zkwire.CodeInvalidACL},
		{"invalid list to set", zkwire.OpSetACL, packet{}.string("/none").acl(all, "none", "").int32(-1), zkwire.CodeInvalidACL},

		{"delete below no node", zkwire.OpDelete, packet{}.string("/closed/x/y").int32(-1), 0},
		{"permission", zkwire.OpSetData, packet{}.string("/open").buffer(nil).int32(-1), 0},
		{"system node", zkwire.OpDelete, packet{}.string("/zookeeper").int32(-1), 0},
		{"bad path", zkwire.OpCreate, packet{}.create("x", nil, 0), 0},
		{"broken", zkwire.OpCreate, packet{}.string("/closed/x"), 0},
		{"createContainer", zkwire.OpCreateContainer, packet{}.create("/closed/x", nil, 4), 0},
		{"multi", zkwire.OpMulti, append(packet{}.part(zkwire.OpDelete).string("/closed/x").int32(-1), packet{}.end()...), 0},
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
					require.Zero(t, leads.must(t, zkwire.OpAuth, packet{}.int32(0).string("digest").buffer([]byte("me:secret"))).code)
					require.Zero(t, leads.must(t, zkwire.OpCreate, packet{}.string("/closed").buffer(nil).acl(all, "auth", "").int32(0)).code)
					require.Zero(t, leads.must(t, zkwire.OpCreate, packet{}.create("/open", nil, 0)).code)
					require.Zero(t, leads.must(t, zkwire.OpSetACL, packet{}.string("/").acl(all, "auth", "").int32(-1)).code)
					clients := make([]*wireClient, len(requests))
					for i := range clients {
						clients[i] = connect(t, f, hello{})
					}
					change(f)

					// The leader's list changes, and the member's does not yet.
					require.Zero(t, leads.must(t, zkwire.OpSetACL, packet{}.string("/closed").open().int32(-1)).code)
					for i, r := range requests {
						c := clients[i]
						require.NoError(t, c.send(zkwire.OpSetData, packet{}.string("/open").buffer(nil).int32(-1)))
						require.NoError(t, c.send(r.op, r.body))
						answered := later(func() *answer { a, _ := c.receive(); return a })
						if !eager || r.code == 0 {
							requireNothing(t, answered)
							continue
						}
						a := suite.Wait(t, answered)
						require.Equal(t, []any{int32(2), int64(0), r.code}, []any{a.xid, a.zxid, a.code}, r.name)
					}
				})
			})
		}
	}

	// A standalone server does so, too. Otherwise the refusal is a transaction.
	for _, eager := range []bool{false, true} {
		c := connect(t, start(t, embedded.Config{InMemory: true, EagerACL: eager}), hello{})
		a := c.must(t, zkwire.OpSetACL, packet{}.string("/none").acl(all, "none", "").int32(-1))
		require.EqualValues(t, zkwire.CodeInvalidACL, a.code)
		require.Equal(t, eager, a.zxid == 0)
	}
}
