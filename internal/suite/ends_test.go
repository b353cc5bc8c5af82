package suite_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/value"
)

// endless are the verbs that go on until ctx ends.
var endless = map[string]verbAt{
	"election.Run": func(ctx context.Context, c *protocol.Client, path string) error {
		return election.New(c, path).Run(ctx, nil, func(ctx context.Context, _ *election.Term) error { <-ctx.Done(); return nil })
	},
	"election.Listen": func(ctx context.Context, c *protocol.Client, path string) error {
		return election.New(c, path).Listen(ctx, nil, func(election.State) {})
	},
	"election.Observe": observing,
	"queue.Items": func(ctx context.Context, c *protocol.Client, path string) error {
		return lastError(queue.New(c, path).Items(ctx))
	},
	"queue.Consume": func(ctx context.Context, c *protocol.Client, path string) error {
		return queue.New(c, path).Consume(ctx, 2, func(context.Context, *queue.Item) error { return nil })
	},
	"group.Watch": func(ctx context.Context, c *protocol.Client, path string) error {
		return lastError(group.New(c, path).Watch(ctx))
	},
	"group.WatchData": func(ctx context.Context, c *protocol.Client, path string) error {
		return lastError(group.New(c, path).WatchData(ctx))
	},
	"group.Share": sharing(func(ctx context.Context, m *group.Member, work func(context.Context, *group.Assignment) error) error {
		return m.Share(ctx, []string{"item"}, work)
	}),
	"group.ShareAll": sharing(func(ctx context.Context, m *group.Member, work func(context.Context, *group.Assignment) error) error {
		return m.ShareAll(ctx, nil, work)
	}),
	"value.Watch": func(ctx context.Context, c *protocol.Client, path string) error {
		return lastError(value.New(c, path).Watch(ctx))
	},
}

func lastError[T any](all iter.Seq2[T, error]) (last error) {
	for _, err := range all {
		last = err
	}
	return last
}

func sharing(share func(context.Context, *group.Member, func(context.Context, *group.Assignment) error) error) verbAt {
	return func(ctx context.Context, c *protocol.Client, path string) error {
		m, err := group.New(c, path).Join(context.Background(), "me", nil)
		if err != nil {
			return err
		}
		defer m.Leave(context.Background())
		return share(ctx, m, func(ctx context.Context, _ *group.Assignment) error { <-ctx.Done(); return nil })
	}
}

// A verb that goes on until ctx ends returns nil if ctx was cancelled, ctx's error if its deadline
// has passed, and [protocol.ErrClosed] if its client was closed, whatever the network is like.
func TestEndlessVerbsEndAlike(t *testing.T) {
	for name, verb := range endless {
		for network, strike := range map[string]func(*recipestest.Link){
			"a connection":            func(*recipestest.Link) {},
			"a server that is silent": (*recipestest.Link).Stall,
			"no connection":           (*recipestest.Link).Cut,
			"no session":              func(l *recipestest.Link) { l.Cut(); time.Sleep(time.Minute) },
		} {
			suite.Run(t, name+" with "+network, func(t *testing.T, srv *recipestest.Server) {
				path, link := srv.Root(t)+"/a", srv.Link(t)
				for _, end := range []error{nil, context.DeadlineExceeded, protocol.ErrClosed} {
					c := link.Client(t)
					ctx, cancel := context.WithCancel(t.Context())
					if end == context.DeadlineExceeded {
						ctx, cancel = context.WithTimeout(t.Context(), 90*time.Second)
					}
					defer cancel()
					ended := suite.Later(func() error { return verb(ctx, c, path) })
					time.Sleep(5 * time.Second)
					strike(link)
					require.Empty(t, ended)

					if end == nil {
						cancel()
					} else if end == protocol.ErrClosed {
						c.Close()
					}
					healing := time.AfterFunc(100*time.Second, link.Heal) // a member that leaves waits for it
					require.ErrorIs(t, suite.Wait(t, ended), end)
					healing.Stop()
					link.Heal()
					c.Close()
				}
			})
		}
	}
}

// A context that has ended before the call is no other case.
func TestEndlessVerbsAreNotBegunInVain(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		for name, verb := range endless {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.NoError(t, verb(ctx, c, srv.Root(t)+"/a"), name)
			ctx = suite.Within(t, 0)
			require.ErrorIs(t, verb(ctx, c, srv.Root(t)+"/a"), context.DeadlineExceeded, name)
		}
	})
}
