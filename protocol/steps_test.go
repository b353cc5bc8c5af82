package protocol_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Each verb of a line meets the end of a back-off, or of its ctx, at each of its steps. The session lives on, and nothing
// is left behind.
func TestNothingIsLeftBehindAtWhateverStepACallEnds(t *testing.T) {
	type verb func(context.Context, *protocol.Line, *protocol.Grant) (*protocol.Grant, error)
	enter := func(ctx context.Context, l *protocol.Line, _ *protocol.Grant) (*protocol.Grant, error) {
		return l.Enter(ctx, bid)
	}
	claim := func(ctx context.Context, l *protocol.Line, _ *protocol.Grant) (*protocol.Grant, error) {
		return l.Claim(ctx, bid)
	}
	verbs := map[string]struct {
		holds bool // before
		ahead bool // another client holds, and releases while the verb waits
		do    verb
	}{
		"enter":                {do: enter},
		"enter behind another": {do: enter, ahead: true},
		"claim":                {do: claim},
		"claim behind another": {do: claim, ahead: true},
		"try": {do: func(ctx context.Context, l *protocol.Line, _ *protocol.Grant) (*protocol.Grant, error) {
			return l.Enter(ctx, protocol.Bid{Kind: bid.Kind, Try: true})
		}},
		"release": {holds: true, do: func(ctx context.Context, _ *protocol.Line, g *protocol.Grant) (*protocol.Grant, error) {
			return nil, protocol.Release(ctx, g)
		}},
		"convert": {holds: true, do: func(ctx context.Context, l *protocol.Line, g *protocol.Grant) (*protocol.Grant, error) {
			return l.Convert(ctx, g, "read-", nil)
		}},
		"set data": {holds: true, do: func(ctx context.Context, l *protocol.Line, g *protocol.Grant) (*protocol.Grant, error) {
			return nil, l.SetData(ctx, g, []byte("x"))
		}},
		"release to": {holds: true, do: func(ctx context.Context, l *protocol.Line, g *protocol.Grant) (*protocol.Grant, error) {
			all, err := l.Standings(ctx)
			if err != nil {
				return nil, err
			}
			return nil, l.ReleaseTo(ctx, g, all[len(all)-1].Name.Node)
		}},
	}
	for name, verb := range verbs {
		for _, end := range []string{"back-off", "ctx"} {
			t.Run(name+", "+end, func(t *testing.T) {
				t.Parallel()
				over := false
				for step := 1; !over; step++ {
					synctest.Test(t, func(t *testing.T) {
						srv := recipestest.Start(t, recipestest.InMemory())
						path, link, other := srv.Root(t)+"/line", srv.Link(t), srv.Client(t)
						c := link.Client(t, impatient(0))
						s := session(t, c)
						of := func(c *protocol.Client) *protocol.Line {
							return protocol.NewLine(c, "test", path, "lock-", "read-")
						}
						enter := func(c *protocol.Client) *protocol.Grant {
							g, err := of(c).Enter(lasting(t), bid)
							require.NoError(t, err)
							return g
						}
						var ahead, g *protocol.Grant
						var behind []<-chan error
						if verb.ahead {
							ahead = enter(other)
						}
						if verb.holds {
							g = enter(c)
							for range 2 {
								behind = append(behind, later(func() error {
									return protocol.Release(lasting(t), enter(other))
								}))
								synctest.Wait()
							}
						}
						ctx, cancel := context.WithCancel(context.Background())
						defer cancel()
						stop := link.At(step, func() {
							if end == "ctx" {
								cancel()
							}
							link.Cut()
							time.AfterFunc(100*time.Millisecond, link.Heal)
						})

						result := later(func() error {
							got, err := verb.do(ctx, of(c), g)
							if got != nil {
								g = got
							}
							return err
						})
						synctest.Wait()
						if ahead != nil {
							require.NoError(t, protocol.Release(lasting(t), ahead))
						}
						what := fmt.Sprintf("step %d: %v", step, wait(t, result))
						over = stop()

						time.Sleep(patience / 2)
						require.NoError(t, s.Err(), what)
						if g != nil && g.Err() == nil {
							require.NoError(t, protocol.Release(lasting(t), g), what)
						}
						for _, b := range behind {
							require.NoError(t, wait(t, b), what)
						}
						all, err := of(other).Standings(lasting(t))
						require.NoError(t, err)
						require.Empty(t, all, what)
						require.NoError(t, c.Close(), what)
					})
				}
			})
		}
	}
}

// A call that has returned begins nothing any more: it only undoes what it had begun.
func TestCallThatWasGivenUpCreatesNothingLater(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		dialer, creates := breaking(link, recipestest.OpCreate)
		c := link.Client(t, dialer, impatient(0))
		require.NoError(t, protocol.Release(lasting(t), hold(t, c, path)))
		before := link.Count(recipestest.OpCreate)
		creates.Store(1)

		_, err := line(c, path).Enter(context.Background(), bid)

		require.ErrorContains(t, err, "given up")
		time.Sleep(time.Minute)
		require.Zero(t, creates.Load())
		require.Equal(t, before, link.Count(recipestest.OpCreate))
	})
}
