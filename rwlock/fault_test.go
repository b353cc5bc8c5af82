package rwlock_test

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
	"github.com/zkrecipes/zkrecipes/rwlock"
)

// A role is what the victim of a fault is about to do.
type role struct {
	name      string
	take      verb
	downgrade bool
}

var roles = []role{{"reader", read, false}, {"writer", write, false}, {"downgrader", write, true}}

// A fault at any step of waiting, holding, downgrading and releasing never yields a writer with
// company, a stuck line or a leftover node.
func TestFaultAtEachStep(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		for _, r := range roles {
			for _, f := range suite.QuickFaults {
				t.Run(r.name+" "+f.Name, func(t *testing.T) {
					t.Parallel()
					sweep(t, srv, root+"/"+r.name+" "+f.Name, r, f)
				})
			}
		}
	})
}

func TestLongFaultAtEachStep(t *testing.T) {
	for _, r := range roles {
		for _, f := range suite.SlowFaults(10 * time.Second) {
			t.Run(r.name+" "+f.Name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					srv := recipestest.Start(t, recipestest.WithInMemory())
					sweep(t, srv, srv.Root(t), r, f)
				})
			})
		}
	}
}

func sweep(t *testing.T, srv *recipestest.Server, root string, r role, f suite.Fault) {
	suite.Sweep(t, func(step int) bool { return meetFault(t, srv, fmt.Sprintf("%s/%d", root, step), r, f, step) })
}

// meetFault makes a victim, a reader and a writer come to a held lock, and the victim meet the
// fault. It reports whether the fault came about.
func meetFault(t *testing.T, srv *recipestest.Server, path string, r role, f suite.Fault, step int) bool {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	link := srv.Link(t)
	first, victim, second, third := srv.Client(t), link.Client(t), srv.Client(t), srv.Client(t)
	defer suite.Close(t, first, second, third)
	session := suite.Session(t, victim).ID()
	book := &ledger{}

	// A server that has to expire a session does not wait until the client can know.
	betrayed := f.Name == "expiry"

	l, err := rwlock.New(first, path).Lock(ctx)
	require.NoError(t, err)
	require.NoError(t, book.granted(l, false))

	over := suite.At(link, step, func() { f.Do(srv, link, session) })
	var wait group
	turn := func(c *protocol.Client, r role, betrayed bool) {
		wait.Go(func() error {
			l, err := r.take(rwlock.New(c, path), ctx)
			if err != nil {
				return err
			}

			if err := book.granted(l, betrayed); err != nil {
				return err
			}

			if r.downgrade {
				book.downgrading(l)
				reading, err := l.Downgrade(ctx)
				if errors.Is(err, protocol.ErrLost) {
					return nil
				} else if err != nil {
					return err
				}

				if err := book.granted(reading, betrayed); err != nil {
					return err
				}

				if err := l.Unlock(ctx); err != nil {
					return err
				}

				l = reading
			}

			if err := l.Unlock(ctx); err != nil && !errors.Is(err, protocol.ErrLost) {
				return err
			}

			return nil
		})
	}

	turn(victim, r, betrayed)
	turn(second, roles[0], false)
	turn(third, roles[1], false)
	require.NoError(t, l.Unlock(ctx))
	require.NoError(t, wait.Wait(), "step %d", step)
	met := over()

	// The nodes that the victim left go away, and the lock is free.
	link.Heal()
	final := rwlock.New(first, path)
	l, err = final.Lock(ctx)
	require.NoError(t, err)
	require.NoError(t, book.granted(l, false))
	require.NoError(t, l.Unlock(ctx))
	awaitContenders(t, final, 0)
	suite.Close(t, victim)
	return met
}

// A ledger records the leases of one lock, in the order of their grants.
type ledger struct {
	mu      sync.Mutex // protects entries
	entries []entry
}

type entry struct {
	*rwlock.Lease
	exclusive bool
	betrayed  bool // its holder may not know that it is over
}

// granted records a new lease. All earlier leases that it excludes must be over, as their own
// holders see it.
func (b *ledger) granted(l *rwlock.Lease, betrayed bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.Err() != nil {
		return nil // it was over before it could be recorded
	}

	for _, earlier := range b.entries {
		switch {
		case !earlier.exclusive && !l.Exclusive(), earlier.betrayed, betrayed:
		case earlier.Err() == nil && l.Err() == nil:
			return fmt.Errorf("two holders: %s and %s", earlier.Node(), l.Node())
		case earlier.Token() >= l.Token():
			return fmt.Errorf("token %d after %d", l.Token(), earlier.Token())
		}
	}

	b.entries = append(b.entries, entry{l, l.Exclusive(), betrayed})
	return nil
}

// downgrading records that a write lease becomes a read lease.
func (b *ledger) downgrading(l *rwlock.Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.entries {
		if b.entries[i].Lease == l {
			b.entries[i].exclusive = false
		}
	}
}
