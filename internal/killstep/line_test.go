package killstep_test

import (
	"context"
	"errors"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// A held is what a contender has acquired.
type held interface{ Node() string }

// A kind of lock is one way to enter a line and to leave it.
type kind struct {
	name    string
	enter   func(ctx context.Context, c *protocol.Client, path string) (held, error)
	try     func(ctx context.Context, c *protocol.Client, path string) (held, error) // nil if there is none
	busy    error
	release func(ctx context.Context, h held) error
}

func releaseLease(ctx context.Context, h held) error { return h.(*lock.Lease).Unlock(ctx) }

var mutexes = kind{
	name: "lock.Mutex",
	enter: func(ctx context.Context, c *protocol.Client, path string) (held, error) {
		return lock.New(c, path).Lock(ctx)
	},
	try: func(ctx context.Context, c *protocol.Client, path string) (held, error) {
		return lock.New(c, path).TryLock(ctx)
	},
	busy:    lock.ErrLocked,
	release: releaseLease,
}

var simples = kind{
	name: "lock.Simple",
	enter: func(ctx context.Context, c *protocol.Client, path string) (held, error) {
		return lock.NewSimple(c, path).Lock(ctx)
	},
	try: func(ctx context.Context, c *protocol.Client, path string) (held, error) {
		return lock.NewSimple(c, path).TryLock(ctx)
	},
	busy:    lock.ErrLocked,
	release: releaseLease,
}

func releaseShared(ctx context.Context, h held) error { return h.(*rwlock.Lease).Unlock(ctx) }

var writers = kind{
	name: "rwlock write",
	enter: func(ctx context.Context, c *protocol.Client, path string) (held, error) {
		return rwlock.New(c, path).Lock(ctx)
	},
	try: func(ctx context.Context, c *protocol.Client, path string) (held, error) {
		return rwlock.New(c, path).TryLock(ctx)
	},
	busy:    rwlock.ErrLocked,
	release: releaseShared,
}

var readers = kind{
	name: "rwlock read",
	enter: func(ctx context.Context, c *protocol.Client, path string) (held, error) {
		return rwlock.New(c, path).RLock(ctx)
	},
	try: func(ctx context.Context, c *protocol.Client, path string) (held, error) {
		return rwlock.New(c, path).TryRLock(ctx)
	},
	busy:    rwlock.ErrLocked,
	release: releaseShared,
}

var permits = kind{
	name: "semaphore",
	enter: func(ctx context.Context, c *protocol.Client, path string) (held, error) {
		return semaphore.New(c, path, 1).Acquire(ctx)
	},
	try: func(ctx context.Context, c *protocol.Client, path string) (held, error) {
		return semaphore.New(c, path, 1).TryAcquire(ctx)
	},
	busy:    semaphore.ErrNoPermit,
	release: func(ctx context.Context, h held) error { return h.(*semaphore.Permit).Release(ctx) },
}

var terms = kind{
	name: "election",
	enter: func(ctx context.Context, c *protocol.Client, path string) (held, error) {
		return election.New(c, path).Campaign(ctx, []byte("value"))
	},
	release: func(ctx context.Context, h held) error { return h.(*election.Term).Resign(ctx) },
}

// standard are the operations that all lines have: to enter and to leave, with others ahead and
// behind. against is the kind of the others.
func standard(k, against kind) []operation {
	cycle := func(s *scene) {
		for _, c := range []*protocol.Client{s.a, s.b} {
			h := must[held](s)(against.enter(s.ctx, c, s.path))
			s.do(against.release(s.ctx, h))
		}
	}
	after := func(s *scene) {
		s.release()
		s.do(s.later.Wait())
		cycle(s)
	}
	ahead := func(s *scene) string {
		h := must[held](s)(against.enter(s.ctx, s.a, s.path))
		s.held = append(s.held, func() { s.do(against.release(s.ctx, h)) })
		return ""
	}
	behind := func(s *scene) {
		s.later.Go(func() error {
			h, err := against.enter(s.ctx, s.b, s.path)
			if err != nil {
				return err
			}
			return against.release(s.ctx, h)
		})
		if k.name != simples.name {
			s.until(s.ctx, s.path, 2)
		}
	}
	enter := func(_ context.Context, p *process) (func(context.Context) error, error) {
		return func(ctx context.Context) error {
			_, err := k.enter(ctx, p.Client, p.path)
			return err
		}, nil
	}
	leave := func(ctx context.Context, p *process) (func(context.Context) error, error) {
		h, err := k.enter(ctx, p.Client, p.path)
		if err != nil {
			return nil, err
		}
		p.node = h.Node()
		return func(ctx context.Context) error { return k.release(ctx, h) }, nil
	}

	all := []operation{
		{name: k.name + ": enter, free", child: enter, after: after},
		{
			name: k.name + ": enter, a holder ahead", before: ahead, child: enter, after: after,
			meanwhile: func(ctx context.Context, s *scene) {
				if k.name == simples.name || s.until(ctx, s.path, 2) {
					s.release()
				}
			},
		},
		{name: k.name + ": leave", child: leave, after: after},
		{name: k.name + ": leave, a waiter behind", child: leave, between: behind, after: after},
		{name: k.name + ": close the client", after: after, child: func(ctx context.Context, p *process) (func(context.Context) error, error) {
			_, err := k.enter(ctx, p.Client, p.path)
			return func(context.Context) error { return p.Close() }, err
		}},
	}
	if k.try == nil {
		return all
	}
	return append(all,
		operation{name: k.name + ": try, free", after: after, child: func(_ context.Context, p *process) (func(context.Context) error, error) {
			return func(ctx context.Context) error {
				_, err := k.try(ctx, p.Client, p.path)
				return err
			}, nil
		}},
		operation{name: k.name + ": try, held", before: ahead, after: after, child: func(_ context.Context, p *process) (func(context.Context) error, error) {
			return func(ctx context.Context) error {
				if _, err := k.try(ctx, p.Client, p.path); !errors.Is(err, k.busy) {
					return unexpected("try: %v", err)
				}
				return nil
			}, nil
		}})
}

func locks() []operation {
	all := append(standard(mutexes, mutexes), standard(simples, simples)...)
	cycle := standard(mutexes, mutexes)[0].after
	ahead := standard(mutexes, mutexes)[1].before

	all = append(all, operation{
		name: "lock.Mutex: lock and unlock, a local queue",
		child: func(_ context.Context, p *process) (func(context.Context) error, error) {
			m := lock.New(p.Client, p.path, lock.WithLocalQueue())
			return func(ctx context.Context) error {
				var all suite.Group
				for range 3 {
					all.Go(func() error {
						return m.Do(ctx, func(context.Context, *lock.Lease) error { return nil })
					})
				}
				return all.Wait()
			}, nil
		},
		after: cycle,
	})

	three := func(c *protocol.Client, path string) []*lock.Mutex {
		return []*lock.Mutex{lock.New(c, path+"/c"), lock.New(c, path+"/a"), lock.New(c, path+"/b")}
	}
	afterAll := func(s *scene) {
		leases := must[*lock.Leases](s)(lock.LockAll(s.ctx, three(s.a, s.path)...))
		s.do(leases.Unlock(s.ctx))
	}
	all = append(all, operation{
		name: "lock.LockAll: lock",
		child: func(_ context.Context, p *process) (func(context.Context) error, error) {
			return func(ctx context.Context) error {
				_, err := lock.LockAll(ctx, three(p.Client, p.path)...)
				return err
			}, nil
		},
		after: afterAll,
	}, operation{
		name: "lock.LockAll: unlock",
		child: func(ctx context.Context, p *process) (func(context.Context) error, error) {
			leases, err := lock.LockAll(ctx, three(p.Client, p.path)...)
			return func(ctx context.Context) error { return leases.Unlock(ctx) }, err
		},
		after: afterAll,
	})

	named := func(s *scene) string {
		ahead(s)
		return s.children(s.path)[0]
	}
	return append(all, operation{
		name: "lock.Mutex: revoke", before: named, after: cycle,
		child: func(_ context.Context, p *process) (func(context.Context) error, error) {
			return func(ctx context.Context) error { return lock.New(p.Client, p.path).Revoke(ctx, p.hint) }, nil
		},
	}, operation{
		name: "lock.Mutex: break", after: cycle,
		before: func(s *scene) string {
			h := must[held](s)(mutexes.enter(s.ctx, s.a, s.path))
			s.held = append(s.held, func() {
				if err := releaseLease(s.ctx, h); !errors.Is(err, protocol.ErrLost) {
					s.do(err)
				}
			})
			return s.children(s.path)[0]
		},
		child: func(_ context.Context, p *process) (func(context.Context) error, error) {
			return func(ctx context.Context) error { return lock.New(p.Client, p.path).Break(ctx, p.hint) }, nil
		},
	})
}

func rwlocks() []operation {
	all := append(standard(writers, readers), standard(readers, writers)...)
	behind, after := all[3].between, all[3].after
	return append(all, operation{
		name: "rwlock: downgrade, a reader behind", between: behind, after: after,
		child: func(ctx context.Context, p *process) (func(context.Context) error, error) {
			l, err := rwlock.New(p.Client, p.path).Lock(ctx)
			return func(ctx context.Context) error {
				_, err := l.Downgrade(ctx)
				return err
			}, err
		},
	}, operation{
		name: "rwlock: read, local sharing", after: after,
		child: func(_ context.Context, p *process) (func(context.Context) error, error) {
			m := rwlock.New(p.Client, p.path, rwlock.WithLocalSharing())
			return func(ctx context.Context) error {
				var all suite.Group
				for range 3 {
					all.Go(func() error {
						return m.RDo(ctx, func(context.Context, *rwlock.Lease) error { return nil })
					})
				}
				return all.Wait()
			}, nil
		},
	})
}

func semaphores() []operation {
	all := standard(permits, permits)
	ahead, behind := all[1].before, all[3].between
	return append(all, operation{
		name: "semaphore: resize, with a holder and a waiter", before: ahead,
		between: behind,
		child: func(_ context.Context, p *process) (func(context.Context) error, error) {
			return func(ctx context.Context) error { return semaphore.New(p.Client, p.path, 1).Resize(ctx, 2) }, nil
		},
		after: func(s *scene) {
			s.release()
			if err := s.later.Wait(); !errors.Is(err, semaphore.ErrPermits) {
				s.do(err)
			}
			again := semaphore.New(s.a, s.path, 2)
			s.do(again.Resize(s.ctx, 2))
			for range 2 {
				p := must[*semaphore.Permit](s)(again.Acquire(s.ctx))
				defer func() { s.do(p.Release(s.ctx)) }()
			}
		},
	})
}

func elections() []operation {
	all := standard(terms, terms)
	behind, after := all[3].between, all[3].after
	lead := func(then func(ctx context.Context, e *election.Election, t *election.Term) error) func(context.Context, *process) (func(context.Context) error, error) {
		return func(ctx context.Context, p *process) (func(context.Context) error, error) {
			e := election.New(p.Client, p.path)
			t, err := e.Campaign(ctx, []byte("value"))
			return func(ctx context.Context) error { return then(ctx, e, t) }, err
		}
	}
	return append(all, operation{
		name: "election: proclaim, a candidate behind", between: behind, after: after,
		child: lead(func(ctx context.Context, _ *election.Election, t *election.Term) error {
			return t.Proclaim(ctx, []byte("another"))
		}),
	}, operation{
		name: "election: resign to the last of two candidates", after: after,
		between: func(s *scene) {
			behind(s)
			s.later.Go(func() error {
				t, err := election.New(s.a, s.path).Campaign(s.ctx, []byte("last"))
				if err != nil {
					return err
				}
				return t.Resign(s.ctx)
			})
			s.until(s.ctx, s.path, 3)
		},
		child: lead(func(ctx context.Context, e *election.Election, t *election.Term) error {
			all, err := e.Candidates(ctx)
			if err != nil {
				return err
			}
			return t.ResignTo(ctx, all[len(all)-1].Node)
		}),
	}, operation{
		name: "election: observe a change", after: after,
		before: all[1].before,
		meanwhile: func(ctx context.Context, s *scene) {
			for _, e := range must[[]election.Candidate](s)(election.New(s.a, s.path).Candidates(s.ctx)) {
				require.NotEmpty(s, e.Node)
			}
			s.release()
		},
		child: func(_ context.Context, p *process) (func(context.Context) error, error) {
			return func(ctx context.Context) error {
				for leader, err := range election.New(p.Client, p.path).Observe(ctx) {
					if err != nil || leader.Vacant() {
						return err
					}
				}
				return nil
			}, nil
		},
	})
}
