package line_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

const (
	noAuth       = -102
	badArguments = -8
)

// A call that goes on without the answer to a request which the server refuses would succeed.
func TestRefusedRequestEndsTheCall(t *testing.T) {
	type call func(context.Context, *line.Line, *protocol.Session) (*protocol.Grant, error)
	contenders := func(ctx context.Context, l *line.Line, _ *protocol.Session) (*protocol.Grant, error) {
		_, err := l.Contenders(ctx)
		return nil, err
	}
	for name, c := range map[string]struct {
		op   recipestest.Op
		held bool // by another client
		call call
	}{
		"Contenders, the sync":    {recipestest.OpSync, true, contenders},
		"Contenders, the listing": {recipestest.OpGetChildren, true, contenders},
		"Contenders, a contender": {recipestest.OpGetData, true, contenders},
		"Enter, the listing": {recipestest.OpGetChildren, false,
			func(ctx context.Context, l *line.Line, _ *protocol.Session) (*protocol.Grant, error) {
				return l.Enter(ctx, request)
			}},
		"Enter that does not wait, the listing": {recipestest.OpGetChildren, false,
			func(ctx context.Context, l *line.Line, _ *protocol.Session) (*protocol.Grant, error) {
				return l.Enter(ctx, line.Request{Kind: request.Kind, Try: true})
			}},
		"Claim, the listing": {recipestest.OpGetChildren, false,
			func(ctx context.Context, l *line.Line, s *protocol.Session) (*protocol.Grant, error) {
				g, _, err := l.Claim(ctx, s, &request)
				return g, err
			}},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				path, link, other := srv.Root(t)+"/line", srv.Link(t), srv.Client(t)
				client := link.Client(t)
				s, l := suite.Session(t, client), lineAt(client, path)
				suite.Keep(t, other, path)
				if c.held {
					term := hold(t, other, path)
					defer resign(t, term)
				}

				link.Fail(c.op, "", noAuth, 1)
				g, err := c.call(suite.Lasting(t), l, s)
				require.ErrorIs(t, err, zk.ErrNoAuth)
				require.Nil(t, g)
			})
		})
	}
}

// A server that lags shows a contender that has left.
func TestContendersAreNoOlderThanTheCall(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, follower := srv.Root(t)+"/x", srv.Link(t), srv.Embedded().Follower()
		link.Move(follower)
		l := lineAt(link.Client(t), path)
		term := hold(t, srv.Client(t), path)
		all, err := l.Contenders(suite.Lasting(t))
		require.NoError(t, err)
		require.Len(t, all, 1)

		follower.Lag(time.Second)
		resign(t, term)
		all, err = l.Contenders(suite.Lasting(t))
		require.NoError(t, err)
		require.Empty(t, all)
	})
}

// What a Check relies on may be newer than a listing. So a request that does not wait is refused
// after two listings, and not after one.
func TestRequestThatDoesNotWaitIsCheckedAgain(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, client := srv.Root(t)+"/line", srv.Client(t)
		suite.Keep(t, client, path)
		refusals := 1
		r := line.Request{Kind: request.Kind, Try: true, Check: func([]line.Name) error {
			if refusals--; refusals >= 0 {
				return zk.ErrBadArguments
			}
			return nil
		}}
		g, err := lineAt(client, path).Enter(suite.Lasting(t), r)
		require.NoError(t, err)
		require.NoError(t, g.Release(suite.Lasting(t)))

		refusals = 2
		_, err = lineAt(client, path).Enter(suite.Lasting(t), r)
		require.ErrorIs(t, err, zk.ErrBadArguments)
		require.Zero(t, refusals, "there is no node yet")
	})
}

func TestKindHasNoSlash(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		l := lineAt(link.Client(t), "/line")
		for _, try := range []bool{false, true} {
			_, err := l.Enter(t.Context(), line.Request{Kind: "a/" + request.Kind, Try: try})
			require.ErrorIs(t, err, zk.ErrBadArguments)
			require.ErrorContains(t, err, "slash")
		}
		require.Zero(t, link.Count(recipestest.OpGetChildren)+link.Count(recipestest.OpMulti))
	})
}
