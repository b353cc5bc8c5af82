package killstep_test

import (
	"context"
	"errors"
	"strconv"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
)

func barriers() []operation {
	of := func(do func(ctx context.Context, b *barrier.Barrier) error, options ...barrier.Option) func(context.Context, *process) (func(context.Context) error, error) {
		return func(_ context.Context, p *process) (func(context.Context) error, error) {
			b := barrier.New(p.Client, p.path, options...)
			return func(ctx context.Context) error { return do(ctx, b) }, nil
		}
	}
	set := func(s *scene) string {
		s.do(barrier.New(s.a, s.path).Set(s.ctx))
		return ""
	}
	wait := func(s *scene) {
		s.later.Go(func() error { return barrier.New(s.b, s.path).Wait(s.ctx) })
	}
	// A waiter passes once another process has removed the barrier.
	after := func(s *scene) {
		b := barrier.New(s.a, s.path)
		s.do(b.Remove(s.ctx))
		s.do(s.later.Wait())
		s.do(b.Set(s.ctx))
		passed := suite.Later(func() error { return barrier.New(s.b, s.path).Wait(s.ctx) })
		s.do(b.Remove(s.ctx))
		s.do(suite.Wait(s, passed))
	}
	return []operation{
		{name: "barrier: set", after: after, child: of(func(ctx context.Context, b *barrier.Barrier) error { return b.Set(ctx) })},
		{
			name: "barrier: set, ephemeral", child: of(func(ctx context.Context, b *barrier.Barrier) error { return b.Set(ctx) }, barrier.WithEphemeral()),
			after: func(s *scene) {
				s.do(barrier.New(s.b, s.path).Wait(s.ctx)) // it has fallen with its session
				after(s)
			},
		},
		{
			name: "barrier: remove, a waiter waits", before: set, between: wait, after: after,
			child: of(func(ctx context.Context, b *barrier.Barrier) error { return b.Remove(ctx) }),
		},
		{
			name: "barrier: wait", before: set, after: after,
			child:     of(func(ctx context.Context, b *barrier.Barrier) error { return b.Wait(ctx) }),
			meanwhile: func(_ context.Context, s *scene) { s.do(barrier.New(s.a, s.path).Remove(s.ctx)) },
		},
	}
}

func doublebarriers() []operation {
	cycle := func(s *scene) {
		var all suite.Group
		for _, c := range []*protocol.Client{s.a, s.b} {
			all.Go(func() error {
				return doublebarrier.New(c, s.path, 2).Do(s.ctx, func(context.Context) error { return nil })
			})
		}
		s.do(all.Wait())
	}
	alone := func(s *scene) {
		s.do(doublebarrier.New(s.a, s.path, 1).Do(s.ctx, func(context.Context) error { return nil }))
		cycle(s)
	}
	enter := func(n int) func(context.Context, *process) (func(context.Context) error, error) {
		return func(_ context.Context, p *process) (func(context.Context) error, error) {
			return func(ctx context.Context) error {
				_, err := doublebarrier.New(p.Client, p.path, n).Enter(ctx)
				return err
			}, nil
		}
	}
	leave := func(n int) func(context.Context, *process) (func(context.Context) error, error) {
		return func(ctx context.Context, p *process) (func(context.Context) error, error) {
			e, err := doublebarrier.New(p.Client, p.path, n).Enter(ctx)
			return func(ctx context.Context) error { return e.Leave(ctx) }, err
		}
	}

	// The other member is let in with the process, or else with a third one.
	second := func(s *scene) {
		finish := make(chan bool)
		s.held = append(s.held, func() { close(finish) })
		s.later.Go(func() error {
			return doublebarrier.New(s.a, s.path, 2).Do(s.ctx, func(context.Context) error {
				<-finish
				return nil
			})
		})
	}
	afterSecond := func(s *scene) {
		s.release()
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		third := suite.Later(func() error {
			return doublebarrier.New(s.b, s.path, 2).Do(ctx, func(context.Context) error { return nil })
		})
		s.do(s.later.Wait())
		cancel()
		// The third one is not needed if a round with the process was under way.
		if err := suite.Wait(s, third); !errors.Is(err, context.Canceled) && !errors.Is(err, doublebarrier.ErrFull) {
			s.do(err)
		}
		cycle(s)
	}
	return []operation{
		{name: "doublebarrier: enter alone", child: enter(1), after: alone},
		{name: "doublebarrier: leave alone", child: leave(1), after: alone},
		{name: "doublebarrier: enter, another comes first", child: enter(2), after: afterSecond, before: func(s *scene) string {
			second(s)
			s.until(s.ctx, s.at("process"), 1)
			return ""
		}},
		{name: "doublebarrier: enter, another comes later", child: enter(2), after: afterSecond, meanwhile: func(ctx context.Context, s *scene) {
			if s.until(ctx, s.at("process"), 1) {
				second(s)
			}
		}},
		{
			name: "doublebarrier: leave, another is inside", child: leave(2), after: afterSecond,
			before:    func(s *scene) string { second(s); return "" },
			meanwhile: func(_ context.Context, s *scene) { s.release() },
		},
	}
}

func groups() []operation {
	join := func(ctx context.Context, p *process) (*group.Member, error) {
		return group.New(p.Client, p.path).Join(ctx, "child", []byte("data"))
	}
	member := func(do func(ctx context.Context, p *process, m *group.Member) error) func(context.Context, *process) (func(context.Context) error, error) {
		return func(ctx context.Context, p *process) (func(context.Context) error, error) {
			m, err := join(ctx, p)
			return func(ctx context.Context) error { return do(ctx, p, m) }, err
		}
	}
	// The name is free, and the member that takes it is the only one.
	after := func(s *scene) {
		g := group.New(s.a, s.path)
		m := must[*group.Member](s)(g.Join(s.ctx, "child", nil))
		require.Len(s, must[[]group.Peer](s)(g.Members(s.ctx)), 1)
		s.do(m.Leave(s.ctx))
		require.Empty(s, must[[]group.Peer](s)(g.Members(s.ctx)))
	}
	errShared := errors.New("shared")
	return []operation{
		{name: "group: join", after: after, child: func(_ context.Context, p *process) (func(context.Context) error, error) {
			return func(ctx context.Context) error {
				_, err := join(ctx, p)
				return err
			}, nil
		}},
		{name: "group: set", after: after, child: member(func(ctx context.Context, _ *process, m *group.Member) error { return m.Set(ctx, []byte("new")) })},
		{name: "group: leave", after: after, child: member(func(ctx context.Context, _ *process, m *group.Member) error { return m.Leave(ctx) })},
		{
			name: "group: share items",
			child: member(func(ctx context.Context, p *process, m *group.Member) error {
				err := group.Share(ctx, group.New(p.Client, p.path), m, []string{"item"}, func(context.Context, string) error { return errShared })
				if !errors.Is(err, errShared) {
					return unexpected("share: %v", err)
				}
				return nil
			}),
			after: func(s *scene) {
				g := group.New(s.a, s.path)
				m := must[*group.Member](s)(g.Join(s.ctx, "other", nil))
				err := group.Share(s.ctx, g, m, []string{"item"}, func(context.Context, string) error { return errShared })
				require.ErrorIs(s, err, errShared)
				s.do(m.Leave(s.ctx))
				after(s)
			},
		},
	}
}

func onces() []operation {
	const key = "key"
	run := func(ctx context.Context, c *protocol.Client, path, key string, keep int) (ran bool, err error) {
		return once.New(c, path, once.WithKeep(keep)).Do(ctx, key, func(context.Context, int64) error { return nil })
	}
	// The key is done or not, and never half: it is forgotten in the order in which it was done.
	after := func(s *scene) {
		s.release()
		require.Len(s, s.children(s.at("order")), len(s.children(s.at("done"))))
		ran := must[bool](s)(run(s.ctx, s.a, s.path, key, 100))
		require.False(s, ran && s.over, "it was done")
		require.False(s, must[bool](s)(run(s.ctx, s.b, s.path, key, 100)))
		require.Len(s, s.children(s.at("order")), len(s.children(s.at("done"))))
	}
	do := func(keep int) func(context.Context, *process) (func(context.Context) error, error) {
		return func(_ context.Context, p *process) (func(context.Context) error, error) {
			return func(ctx context.Context) error {
				_, err := run(ctx, p.Client, p.path, key, keep)
				return err
			}, nil
		}
	}
	return []operation{
		{name: "once: do", child: do(100), after: after},
		{name: "once: do, and forget others", child: do(1), after: after, before: func(s *scene) string {
			for i := range 3 {
				must[bool](s)(run(s.ctx, s.a, s.path, strconv.Itoa(i), 100))
			}
			return ""
		}},
		{name: "once: do, another runs", child: do(100), after: after, before: func(s *scene) string {
			running, finish := make(chan bool), make(chan bool)
			s.later.Go(func() error {
				_, err := once.New(s.b, s.path).Do(s.ctx, key, func(context.Context, int64) error {
					running <- true
					<-finish
					return errUnexpected
				})
				if !errors.Is(err, errUnexpected) {
					return err
				}
				return nil
			})
			suite.Wait(s, running)
			s.held = append(s.held, func() { close(finish); s.do(s.later.Wait()) })
			return ""
		}, meanwhile: func(ctx context.Context, s *scene) {
			if s.until(ctx, s.path, 2) {
				s.release()
			}
		}},
	}
}
