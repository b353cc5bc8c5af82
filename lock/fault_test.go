package lock_test

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
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A fault at any step of waiting, holding and releasing never yields two holders, a stuck line or a
// leftover node.
func TestFaultAtEachStep(t *testing.T) {
	eachKind(t, func(t *testing.T, srv *recipestest.Server, newLock newFunc) {
		root := srv.Root(t)
		for _, f := range suite.QuickFaults {
			t.Run(f.Name, func(t *testing.T) {
				t.Parallel()
				sweep(t, srv, root+"/"+f.Name, newLock, f)
			})
		}
	})
}

func TestLongFaultAtEachStep(t *testing.T) {
	for kind, newLock := range kinds {
		for _, f := range suite.SlowFaults(10 * time.Second) {
			t.Run(kind+" "+f.Name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					srv := recipestest.Start(t, recipestest.WithInMemory())
					sweep(t, srv, srv.Root(t), newLock, f)
				})
			})
		}
	}
}

func sweep(t *testing.T, srv *recipestest.Server, root string, newLock newFunc, f suite.Fault) {
	suite.Sweep(t, func(step int) bool {
		return meetFault(t, srv, fmt.Sprintf("%s/%d", root, step), newLock, f, step)
	})
}

// meetFault makes three contenders take the lock in turn. The second one meets the fault. It
// reports whether the fault came about.
func meetFault(t *testing.T, srv *recipestest.Server, path string, newLock newFunc, f suite.Fault, step int) bool {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	link := srv.Link(t)
	first, victim, last := srv.Client(t), link.Client(t), srv.Client(t)
	defer suite.Close(t, first, last)
	session := suite.Session(t, victim).ID()
	book := &ledger{forced: f.Name == "expiry"}

	l, err := newLock(first, path).Lock(ctx)
	require.NoError(t, err)
	require.NoError(t, book.granted(l))

	over := suite.At(link, step, func() { f.Do(srv, link, session) })
	var wait suite.Group
	contend := func(c *protocol.Client) {
		wait.Go(func() error {
			l, err := newLock(c, path).Lock(ctx)
			if err != nil {
				return err
			}
			if err := book.granted(l); err != nil {
				return err
			}
			if err := l.Unlock(ctx); err != nil && !errors.Is(err, protocol.ErrLost) {
				return err
			}
			return nil
		})
	}

	contend(victim)
	contend(last)
	if err := l.Unlock(ctx); !errors.Is(err, protocol.ErrLost) { // the fault may hit only the others
		require.NoError(t, err)
	}

	require.NoError(t, wait.Wait(), "step %d", step)
	met := over()

	// The nodes that the victim left go away, and the lock is free.
	link.Heal()
	final := newLock(last, path)
	l, err = final.Lock(ctx)
	require.NoError(t, err)
	require.NoError(t, book.granted(l))
	require.NoError(t, l.Unlock(ctx))
	suite.Await(t, 0, final.Contenders)
	suite.Close(t, victim)
	return met
}

// A ledger records the leases of one lock, in the order of their grants.
type ledger struct {
	// forced says that the server ends a session before its time. Then the next grant may come
	// before the holder learns of its loss.
	forced bool
	mu     sync.Mutex
	leases []*lock.Lease
}

// granted records a new lease. All earlier ones must be over, as their own holders see it.
func (b *ledger) granted(l *lock.Lease) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.Err() != nil {
		return nil // it was over before it could be recorded
	}

	for _, earlier := range b.leases {
		switch {
		case b.forced:
			if err := awaitEither(earlier, l); err != nil {
				return err
			}
		case earlier.Err() == nil && l.Err() == nil:
			return fmt.Errorf("two holders: %s and %s", earlier.Node(), l.Node())
		case earlier.Token() >= l.Token():
			return fmt.Errorf("token %d after %d", l.Token(), earlier.Token())
		}
	}

	b.leases = append(b.leases, l)
	return nil
}

// awaitEither waits until the earlier of two holders learns of its loss.
func awaitEither(a, b *lock.Lease) error {
	first := a
	if b.Token() < a.Token() {
		first = b
	}
	select {
	case <-first.Done():
		return nil
	case <-time.After(suite.Limit):
		return fmt.Errorf("%s never learnt of its loss", first.Node())
	}
}
