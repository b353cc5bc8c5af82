package line_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// What a line knows of its node is a version, which begins anew when the node is made again, with
// data this time.
func TestDataOfALineThatWasMadeAgainIsKept(t *testing.T) {
	for before := range 5 {
		t.Run(fmt.Sprint(before), func(t *testing.T) {
			suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
				root := srv.Root(t)
				path := root + "/x"
				c, op := srv.Client(t), suite.Session(t, srv.Client(t)).Conn()
				for _, node := range []string{root, path} { // root is no container, which might go when it is empty
					_, err := op.Create(node, nil, 0, zk.WorldACL(zk.PermAll))
					require.NoError(t, err)
				}
				l := lineAt(c, path)
				enter := func(b line.Request) {
					g, err := l.Enter(suite.Lasting(t), b)
					require.NoError(t, err)
					release(t, g)
				}
				for range before {
					enter(request)
				}
				require.NoError(t, op.Delete(path, -1))
				_, err := op.Create(path, []byte("owner: team-a"), 0, zk.WorldACL(zk.PermAll))
				require.NoError(t, err)
				for i := range 4 {
					enter(line.Request{Kind: request.Kind, Try: i == 3})
				}
				data, _, err := op.Get(path)
				require.NoError(t, err)
				require.Equal(t, "owner: team-a", string(data))
			})
		})
	}
}

// A path that another client has made is fast from the third time on, if that may be: the release
// of the second one sets the version that the third one sets.
func TestLineThatOthersHaveMadeIsFastInTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		perms         int32
		multis, lists int // of six cycles
	}{
		"may be set":     {zk.PermAll, 1 + 4, 2},
		"may not be set": {zk.PermAll &^ zk.PermWrite, 1, 6},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Steadily(t, suite.EmbeddedAndReal, func(t *testing.T, srv *recipestest.Server) {
				root, link := srv.Root(t), srv.Link(t)
				path, operator := root+"/x", srv.Client(t)
				client, op := link.Client(t), suite.Session(t, operator).Conn()
				_, err := suite.Session(t, operator).EnsurePath(suite.Lasting(t), root)
				require.NoError(t, err)
				_, err = op.Create(path, nil, 0, zk.WorldACL(c.perms))
				require.NoError(t, err)
				suite.Session(t, client)
				l := lineAt(client, path)
				for range 6 {
					g, err := l.Enter(suite.Lasting(t), request)
					require.NoError(t, err)
					release(t, g)
				}
				if suite.Steady(t, link) {
					require.Equal(t, c.multis, link.Count(recipestest.OpMulti))
					require.Equal(t, c.lists, link.Count(recipestest.OpGetChildren))
				}
				require.NoError(t, op.Delete(path, -1), "no node is left behind")
			})
		})
	}
}

// Version 0 is also that of a node that another client has made, with data.
func TestDataOfALineThatACancelledCallHasMadeAreKept(t *testing.T) {
	over := false
	for step := 1; !over; step++ {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithInMemory())
			root, link := srv.Root(t), srv.Link(t)
			path, c, op := root+"/x", link.Client(t), suite.Session(t, srv.Client(t))
			_, err := op.EnsurePath(suite.Lasting(t), root)
			require.NoError(t, err)
			suite.Session(t, c)
			l := lineAt(c, path)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stop := link.At(step, func() {
				cancel()
				time.Sleep(time.Millisecond) // until the call has returned
			})
			g, err := l.Enter(ctx, request)
			if err == nil {
				release(t, g)
			}
			over = stop()
			time.Sleep(time.Second)

			if err := op.Delete(suite.Lasting(t), path, -1); !errors.Is(err, zk.ErrNoNode) {
				require.NoError(t, err)
			}
			require.NoError(t, op.Create(suite.Lasting(t), path, []byte("owner: team-a"), 0))
			g, err = l.Enter(suite.Lasting(t), request)
			require.NoError(t, err)
			release(t, g)
			data, _, err := op.Get(suite.Lasting(t), path)
			require.NoError(t, err)
			require.Equal(t, "owner: team-a", string(data), "step %d", step)
		})
	}
}

// What was known of the node that is gone is not used for the one that takes its place.
func TestLineThatWasDeletedIsFastAtOnce(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/x", srv.Link(t)
		op, l := suite.Session(t, srv.Client(t)), lineAt(link.Client(t), path)
		enter := func() {
			g, err := l.Enter(suite.Lasting(t), request)
			require.NoError(t, err)
			release(t, g)
		}
		for range 3 {
			enter()
		}
		require.NoError(t, op.Delete(suite.Lasting(t), path, -1))

		multis, lists := link.Count(recipestest.OpMulti), link.Count(recipestest.OpGetChildren)
		enter() // finds out, makes the path, and is fast
		require.Equal(t, multis+2, link.Count(recipestest.OpMulti))
		require.Equal(t, lists, link.Count(recipestest.OpGetChildren))
	})
}

// The version of a line's node that a client has created is forgotten if it then creates nothing
// there: another client's node may take that one's place.
func TestDataOfALineWhoseFirstContenderWasRefusedAreKept(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link, op := srv.Root(t), srv.Link(t), suite.Session(t, srv.Client(t))
		path, ctx := root+"/x", suite.Lasting(t)
		suite.Keep(t, srv.Client(t), root)
		l := lineAt(link.Client(t), path)
		link.Fail(recipestest.OpMulti, "", badArguments, 1)
		_, err := l.Enter(ctx, request)
		require.ErrorIs(t, err, zk.ErrBadArguments)
		require.NoError(t, op.Delete(ctx, path, -1))
		require.NoError(t, op.Create(ctx, path, []byte("owner: team-a"), 0))

		enterAndKeep(t, l, op, path)
	})
}

// enterAndKeep enters a line and leaves it, which keeps the data of its node.
func enterAndKeep(t *testing.T, l *line.Line, op *protocol.Session, path string) {
	t.Helper()
	g, err := l.Enter(suite.Lasting(t), request)
	require.NoError(t, err)
	release(t, g)
	data, _, err := op.Get(suite.Lasting(t), path)
	require.NoError(t, err)
	require.Equal(t, "owner: team-a", string(data))
}

// What was known of a line's node is forgotten when a listing finds that it is gone. The node that
// takes its place has data, and was set as often.
func TestDataOfALineThatWasSeenToBeGoneAreKept(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, op := srv.Root(t), suite.Session(t, srv.Client(t))
		path, ctx := root+"/x", suite.Lasting(t)
		suite.Keep(t, srv.Client(t), root)
		l := lineAt(srv.Client(t), path)
		for range 3 {
			g, err := l.Enter(ctx, request)
			require.NoError(t, err)
			release(t, g)
		}
		_, known, err := op.Get(ctx, path)
		require.NoError(t, err)
		require.NoError(t, op.Delete(ctx, path, -1))
		all, err := l.Contenders(ctx)
		require.NoError(t, err)
		require.Empty(t, all)
		require.NoError(t, op.Create(ctx, path, []byte("owner: team-a"), 0))
		for version := range known.Version {
			_, err := op.Set(ctx, path, []byte("owner: team-a"), version)
			require.NoError(t, err)
		}

		enterAndKeep(t, l, op, path)
	})
}

// A line that is fast, and may not be set any more, goes on without.
func TestLineThatMayNotBeSetAnyMoreIsEntered(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, op := srv.Root(t)+"/x", srv.Link(t), suite.Session(t, srv.Client(t))
		l := lineAt(link.Client(t), path)
		enter := func() {
			g, err := l.Enter(suite.Lasting(t), request)
			require.NoError(t, err)
			release(t, g)
		}
		for range 3 {
			enter()
		}
		_, err := op.Conn().SetACL(path, zk.WorldACL(zk.PermAll&^zk.PermWrite), -1)
		require.NoError(t, err)

		multis := link.Count(recipestest.OpMulti)
		for range 3 {
			enter()
		}
		require.Equal(t, multis+1, link.Count(recipestest.OpMulti))
	})
}
