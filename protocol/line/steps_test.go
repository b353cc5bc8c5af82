package line_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

// A held is something that one of the verbs holds.
type held struct {
	grant   *protocol.Grant
	lease   *rwlock.Lease
	term    *election.Term
	err     func() error
	release func(context.Context) error
}

func granted(g *protocol.Grant, err error) (*held, error) {
	if err != nil {
		return nil, err
	}
	return &held{grant: g, err: g.Err, release: g.Release}, nil
}

func leased(l *rwlock.Lease, err error) (*held, error) {
	if err != nil {
		return nil, err
	}
	return &held{lease: l, err: l.Err, release: l.Unlock}, nil
}

func claim(ctx context.Context, c *protocol.Client, path string, _ *held) (*held, error) {
	l, err := lock.NewSimple(c, path).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return &held{err: l.Err, release: l.Unlock}, nil
}

// impatient returns an option for a back-off that ends after so many retries.
func impatient(retries uint64) protocol.Option {
	return protocol.WithBackOff(func() backoff.BackOff {
		return backoff.WithMaxRetries(backoff.NewConstantBackOff(10*time.Millisecond), retries)
	})
}

// Each verb of a line meets the end of a back-off, or of its ctx, at each of its steps. The session
// lives on, and nothing is left behind.
func TestNothingIsLeftBehindAtWhateverStepACallEnds(t *testing.T) {
	type verb func(ctx context.Context, c *protocol.Client, path string, g *held) (*held, error)
	enter := func(ctx context.Context, c *protocol.Client, path string, _ *held) (*held, error) {
		g, err := lineAt(c, path).Enter(ctx, request)
		return granted(g, err)
	}
	verbs := map[string]struct {
		begin verb // what it holds before, if it does
		ahead bool // another client holds, and releases while the verb waits
		do    verb
	}{
		"enter":                {do: enter},
		"enter behind another": {do: enter, ahead: true},
		"claim":                {do: claim},
		"claim behind another": {do: claim, ahead: true},
		"try": {do: func(ctx context.Context, c *protocol.Client, path string, _ *held) (*held, error) {
			g, err := lineAt(c, path).Enter(ctx, line.Request{Kind: request.Kind, Blockers: request.Blockers, Try: true})
			return granted(g, err)
		}},
		"release": {begin: enter, do: func(ctx context.Context, _ *protocol.Client, _ string, g *held) (*held, error) {
			return nil, g.release(ctx)
		}},
		"downgrade": {begin: func(ctx context.Context, c *protocol.Client, path string, _ *held) (*held, error) {
			l, err := rwlock.New(c, path).Lock(ctx)
			return leased(l, err)
		}, do: func(ctx context.Context, _ *protocol.Client, _ string, g *held) (*held, error) {
			l, err := g.lease.Downgrade(ctx)
			return leased(l, err)
		}},
		"set data": {begin: enter, do: func(ctx context.Context, _ *protocol.Client, _ string, g *held) (*held, error) {
			return nil, g.grant.SetData(ctx, []byte("x"))
		}},
		"resign to": {begin: func(ctx context.Context, c *protocol.Client, path string, _ *held) (*held, error) {
			term, err := election.New(c, path).Campaign(ctx, nil)
			return &held{term: term, err: term.Err, release: term.Resign}, err
		}, do: func(ctx context.Context, c *protocol.Client, path string, g *held) (*held, error) {
			all, err := lineAt(c, path).Contenders(ctx)
			if err != nil {
				return nil, err
			}
			return nil, g.term.ResignTo(ctx, all[len(all)-1].Node)
		}},
	}
	for name, verb := range verbs {
		for _, end := range []string{"back-off", "ctx"} {
			t.Run(name+", "+end, func(t *testing.T) {
				t.Parallel()
				over := false
				for step := 1; !over; step++ {
					synctest.Test(t, func(t *testing.T) {
						srv := recipestest.Start(t, recipestest.WithInMemory())
						path, link, other := srv.Root(t)+"/line", srv.Link(t), srv.Client(t)
						c := link.Client(t, impatient(0))
						s := suite.Session(t, c)
						begin := enter
						if verb.begin != nil {
							begin = verb.begin
						}
						hold := func(c *protocol.Client) *held {
							g, err := begin(suite.Lasting(t), c, path, nil)
							require.NoError(t, err)
							return g
						}
						var ahead, g *held
						var behind []<-chan error
						if verb.ahead {
							ahead = hold(other)
						}
						if verb.begin != nil {
							g = hold(c)
							for range 2 {
								behind = append(behind, suite.Later(func() error {
									return hold(other).release(suite.Lasting(t))
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

						result := suite.Later(func() error {
							got, err := verb.do(ctx, c, path, g)
							if got != nil {
								g = got
							}
							return err
						})
						synctest.Wait()
						if ahead != nil {
							require.NoError(t, ahead.release(suite.Lasting(t)))
						}
						what := fmt.Sprintf("step %d: %v", step, suite.Wait(t, result))
						over = stop()

						time.Sleep(suite.Limit / 2)
						require.NoError(t, s.Err(), what)
						if g != nil && g.err() == nil {
							require.NoError(t, g.release(suite.Lasting(t)), what)
						}
						for _, b := range behind {
							require.NoError(t, suite.Wait(t, b), what)
						}
						children, _, err := suite.Session(t, other).Children(suite.Lasting(t), path)
						if !errors.Is(err, zk.ErrNoNode) {
							require.NoError(t, err)
						}
						require.Empty(t, children, what)
						require.NoError(t, c.Close(), what)
					})
				}
			})
		}
	}
}

// A call that has returned begins nothing any more: it only undoes what it had begun.
func TestCallThatWasGivenUpCreatesNothingLater(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		dialer, creates := suite.Breaking(link, recipestest.OpCreate)
		c := link.Client(t, dialer, impatient(0))
		require.NoError(t, hold(t, c, path).Resign(suite.Lasting(t)))
		before := link.Count(recipestest.OpCreate)
		creates.Store(1)

		_, err := lineAt(c, path).Enter(context.Background(), request)

		require.ErrorContains(t, err, "given up")
		time.Sleep(time.Minute)
		require.Zero(t, creates.Load())
		require.Equal(t, before, link.Count(recipestest.OpCreate))
	})
}
