package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// A fault at any step of waiting, holding and releasing never yields too many holders, a stuck line
// or a leftover node.
func TestFaultAtEachStep(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		for _, f := range suite.QuickFaults {
			t.Run(f.Name, func(t *testing.T) {
				t.Parallel()
				suite.Sweep(t, func(step int) bool {
					return meetFault(t, srv, fmt.Sprintf("%s/%s/%d", root, f.Name, step), f, step)
				})
			})
		}
	})
}

func TestLongFaultAtEachStep(t *testing.T) {
	for _, f := range suite.SlowFaults(10 * time.Second) {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				root := srv.Root(t)
				suite.Sweep(t, func(step int) bool {
					return meetFault(t, srv, fmt.Sprintf("%s/%d", root, step), f, step)
				})
			})
		})
	}
}

// meetFault makes goroutines of three clients take two permits in turn. The second client meets the
// fault. meetFault reports whether the fault came about.
func meetFault(t *testing.T, srv *recipestest.Server, path string, f suite.Fault, step int) bool {
	const permits = 2
	ctx := suite.Within(t, 10*time.Minute)
	link := srv.Link(t)
	first, victim, last := srv.Client(t), link.Client(t), srv.Client(t)
	defer suite.Close(t, first, last)
	session := suite.Session(t, victim).ID()
	book := &ledger{permits: permits, forced: f.Name == "expiry"}
	var held []*semaphore.Permit
	for range permits {
		p, err := semaphore.New(first, path, permits).Acquire(ctx)
		require.NoError(t, err)
		require.NoError(t, book.granted(p))
		held = append(held, p)
	}

	over := suite.At(link, step, func() { f.Do(srv, link, session) })
	var wait suite.Group
	contend := func(c *protocol.Client) {
		s := semaphore.New(c, path, permits)
		for range 2 {
			wait.Go(func() error {
				p, err := s.Acquire(ctx)
				if err != nil {
					return err
				}
				if err := book.granted(p); err != nil {
					return err
				}
				if err := p.Release(ctx); !errors.Is(err, protocol.ErrLost) {
					return err
				}
				return nil
			})
		}
	}
	contend(victim)
	contend(last)
	for _, p := range held {
		if err := p.Release(ctx); !errors.Is(err, protocol.ErrLost) {
			require.NoError(t, err)
		}
	}
	require.NoError(t, wait.Wait(), "step %d", step)
	met := over()

	// The nodes that the victim left go away, and all permits are free.
	link.Heal()
	final := semaphore.New(last, path, permits)
	held = nil
	for range permits {
		p, err := final.Acquire(ctx)
		require.NoError(t, err)
		require.NoError(t, book.granted(p))
		held = append(held, p)
	}
	for _, p := range held {
		require.NoError(t, p.Release(ctx))
	}
	contenders(t, final, 0)
	suite.Close(t, victim)
	return met
}

// Many goroutines of several clients whose connections break again and again.
func TestNoMoreHoldersThanPermits(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		const clients, goroutines, cycles, permits = 4, 5, 4, 3
		path := srv.Root(t) + "/s"
		book := &ledger{permits: permits}
		var wait, faults suite.Group
		over := make(chan struct{})
		for range clients {
			link := srv.Link(t)
			c := link.Client(t)
			s := semaphore.New(c, path, permits)
			for range goroutines {
				wait.Go(func() error {
					for range cycles {
						err := s.Do(t.Context(), func(_ context.Context, p *semaphore.Permit) error { return book.granted(p) })
						if err != nil && !errors.Is(err, protocol.ErrLost) {
							return err
						}
					}
					return nil
				})
			}
			faults.Go(func() error {
				for answers := 20; ; answers += 20 {
					select {
					case <-link.Answered(recipestest.OpAny, answers):
						link.Cut()
						link.Heal()
					case <-over:
						return nil
					}
				}
			})
		}
		require.NoError(t, wait.Wait())
		close(over)
		require.NoError(t, faults.Wait())
		contenders(t, semaphore.New(srv.Client(t), path, permits), 0)
	})
}

// A ledger records permits.
type ledger struct {
	permits int

	// forced says that the server ends a session before its time. Then the next grant may come
	// before a holder learns of its loss.
	forced bool
	mu     sync.Mutex
	all    []*semaphore.Permit
}

// granted records a new permit. If too many report that they are held, one after the other, then
// they were held at one moment: what is over stays over.
func (b *ledger) granted(p *semaphore.Permit) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, p)
	deadline := time.Now().Add(suite.Limit)
	for {
		var held []*semaphore.Permit
		for _, q := range b.all {
			if q.Err() == nil {
				held = append(held, q)
			}
		}
		b.all = held
		switch {
		case len(held) <= b.permits:
			return nil
		case !b.forced || time.Now().After(deadline):
			return fmt.Errorf("%d holders of %d permits", len(held), b.permits)
		}
		time.Sleep(time.Millisecond) // until the forced one learns of it
	}
}
