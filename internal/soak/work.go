package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

const (
	clients = 4
	root    = "/soak"
)

// A worker takes one turn after the other, as fast as it can.
type worker struct {
	name string
	turn func(ctx context.Context) error
	done atomic.Int64 // turns that have succeeded
}

// work takes turns until ctx ends. It returns an error that no fault and no timeout explains.
func (w *worker) work(ctx context.Context) error {
	for ctx.Err() == nil {
		switch err := w.takeTurn(ctx); {
		case err == nil:
			w.done.Add(1)
		case !explained(err):
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

// takeTurn takes one turn. Some turns have so little time that they are cut short.
func (w *worker) takeTurn(ctx context.Context) error {
	limit := 10 * time.Second
	if rand.IntN(8) == 0 {
		limit = rand.N(20 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return w.turn(ctx)
}

// explained reports whether a fault, another worker or a timeout explains an error.
func explained(err error) bool {
	for _, expected := range []error{
		context.DeadlineExceeded, context.Canceled,
		protocol.ErrLost, protocol.ErrReleased, protocol.ErrUncertain,
		lock.ErrLocked, rwlock.ErrLocked, semaphore.ErrNoPermit, election.ErrNoLeader, election.ErrNotInLine,
		queue.ErrEmpty, queue.ErrFull, doublebarrier.ErrFull, group.ErrNameTaken,
	} {
		if errors.Is(err, expected) {
			return true
		}
	}
	return false
}

// workersOf returns the workers of client number i.
func workersOf(s *soak, i int, c *protocol.Client) []*worker {
	var all []*worker
	add := func(name string, turn func(ctx context.Context) error) {
		all = append(all, &worker{name: name, turn: turn})
	}
	addLocks(c, add)
	addElection(c, i, add)
	addQueue(c, add)
	addBarriers(c, i, add)
	addGroup(c, i, add)
	add("connect", func(ctx context.Context) error {
		c, err := protocol.Connect(ctx, s.address, protocol.WithDialer(s.nets[i].dial))
		if err != nil {
			return err
		}
		nothing := func(context.Context, *lock.Lease) error { return nil }
		err = lock.New(c, root+"/brief").Do(ctx, nothing)
		c.Close() // what it may leave goes with its session
		return err
	})
	return all
}

type adder func(name string, turn func(ctx context.Context) error)

var fresh atomic.Int64 // the number of paths that were used once

func addLocks(c *protocol.Client, add adder) {
	held := func(context.Context, *lock.Lease) error { return nil }
	local := lock.New(c, root+"/local", lock.WithLocalQueue())
	for range 2 {
		add("lock", func(ctx context.Context) error { return lock.New(c, root+"/lock").Do(ctx, held) })
		add("local queue", func(ctx context.Context) error { return local.Do(ctx, held) })
	}
	add("try", func(ctx context.Context) error { return lock.New(c, root+"/try").TryDo(ctx, held) })
	add("simple", func(ctx context.Context) error { return lock.NewSimple(c, root+"/simple").Do(ctx, held) })
	add("fresh path", func(ctx context.Context) error {
		return lock.New(c, fmt.Sprintf("%s/fresh/%d", root, fresh.Add(1))).Do(ctx, held)
	})
	add("all", func(ctx context.Context) error {
		leases, err := lock.LockAll(ctx, lock.New(c, root+"/b"), lock.New(c, root+"/a"), lock.New(c, root+"/c"))
		if err != nil {
			return err
		}
		return leases.Unlock(ctx)
	})
	add("revoke", func(ctx context.Context) error {
		m := lock.New(c, root+"/revoked")
		lease, err := m.Lock(ctx)
		if err != nil {
			return err
		}
		return errors.Join(m.Revoke(ctx, lease.Node()), wait(ctx, lease.Revoked()), lease.Unlock(ctx))
	})

	rw, shared := rwlock.New(c, root+"/rw"), rwlock.New(c, root+"/shared", rwlock.WithLocalSharing())
	nothing := func(context.Context, *rwlock.Lease) error { return nil }
	add("read", func(ctx context.Context) error { return rw.RDo(ctx, nothing) })
	add("write", func(ctx context.Context) error { return rw.Do(ctx, nothing) })
	for range 2 {
		add("shared read", func(ctx context.Context) error { return shared.RDo(ctx, nothing) })
	}
	add("downgrade", func(ctx context.Context) error {
		l, err := rw.Lock(ctx)
		if err != nil {
			return err
		}
		lower, err := l.Downgrade(ctx)
		if err != nil {
			return errors.Join(err, l.Unlock(ctx))
		}
		return lower.Unlock(ctx)
	})

	for range 2 {
		add("semaphore", func(ctx context.Context) error {
			return semaphore.New(c, root+"/semaphore", 3).Do(ctx, func(context.Context, *semaphore.Permit) error { return nil })
		})
	}
}

func addElection(c *protocol.Client, i int, add adder) {
	e := election.New(c, root+"/election")
	add("campaign", func(ctx context.Context) error {
		t, err := e.Campaign(ctx, fmt.Append(nil, i))
		if err != nil {
			return err
		}
		return errors.Join(t.Proclaim(ctx, fmt.Append(nil, "new ", i)), t.Resign(ctx))
	})
	add("observe", func(ctx context.Context) error {
		seen := 0
		for _, err := range e.Observe(ctx) {
			if seen++; err != nil || seen == 10 {
				return err
			}
		}
		return nil
	})
}

func addQueue(c *protocol.Client, add adder) {
	dead := queue.New(c, root+"/dead")
	q := queue.New(c, root+"/queue", queue.WithMaxLength(200), queue.WithDeadLetter(dead, 2))
	keyed := queue.New(c, root+"/keyed", queue.WithMaxLength(200), queue.WithKeyRetention(2*time.Second))
	data := bytes.Repeat([]byte("x"), 100)
	id := func(_ string, err error) error { return err }
	taken := func(_ []byte, err error) error { return err }

	for range 2 {
		add("offer", func(ctx context.Context) error { return id(q.OfferWait(ctx, data)) })
		add("take", func(ctx context.Context) error { return taken(q.Take(ctx)) })
	}
	add("offer later", func(ctx context.Context) error { return id(q.OfferAfter(ctx, 50*time.Millisecond, data)) })
	add("offer all", func(ctx context.Context) error {
		_, err := q.OfferAll(ctx, [][]byte{data, data, data})
		return err
	})
	add("reserve", func(ctx context.Context) error {
		item, err := q.Reserve(ctx)
		switch {
		case err != nil:
			return err
		case rand.IntN(3) == 0:
			return item.Nack(ctx, queue.After(10*time.Millisecond))
		case rand.IntN(3) == 0:
			return item.Nack(ctx)
		default:
			return item.Ack(ctx)
		}
	})
	add("poll", func(ctx context.Context) error {
		_, err := q.PollN(ctx, 10)
		return err
	})
	add("dead letters", func(ctx context.Context) error { return taken(dead.Take(ctx)) })
	add("offer keyed", func(ctx context.Context) error {
		return id(keyed.OfferKey(ctx, fmt.Sprint(time.Now().UnixMilli()/2), data))
	})
	add("take keyed", func(ctx context.Context) error { return taken(keyed.Take(ctx)) })
}

func addBarriers(c *protocol.Client, i int, add adder) {
	b := barrier.New(c, root+"/barrier")
	if i == 0 {
		add("set and remove", func(ctx context.Context) error {
			if err := b.Set(ctx); err != nil {
				return err
			}
			pause(ctx, time.Millisecond)
			return b.Remove(ctx)
		})
	}
	add("wait", func(ctx context.Context) error { return b.Wait(ctx) })
	add("enter and leave", func(ctx context.Context) error {
		return doublebarrier.New(c, root+"/double", clients).Do(ctx, func(context.Context) error { return nil })
	})
	add("once", func(ctx context.Context) error {
		o := once.New(c, root+"/once", once.WithKeep(20))
		_, err := o.Do(ctx, fmt.Sprint(time.Now().UnixMilli()/20), func(context.Context, int64) error { return nil })
		return err
	})
}

func addGroup(c *protocol.Client, i int, add adder) {
	g := group.New(c, root+"/group")
	add("join", func(ctx context.Context) error {
		m, err := g.Join(ctx, fmt.Sprintf("member-%d", i), nil)
		if err != nil {
			return err
		}
		err = m.Set(ctx, []byte("data"))
		return errors.Join(err, m.Leave(ctx))
	})
	add("watch", func(ctx context.Context) error {
		seen := 0
		for _, err := range g.Watch(ctx) {
			if seen++; err != nil || seen == 10 {
				return err
			}
		}
		return nil
	})
	add("share", func(ctx context.Context) error {
		shared := group.New(c, root+"/sharers")
		m, err := shared.Join(ctx, fmt.Sprintf("sharer-%d", i), nil)
		if err != nil {
			return err
		}
		sharing, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		err = group.Share(sharing, shared, m, []string{"a", "b", "c"}, func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return nil
		})
		if sharing.Err() != nil && ctx.Err() == nil {
			err = nil
		}
		return errors.Join(err, m.Leave(ctx))
	})
}

// wait waits for a signal.
func wait(ctx context.Context, signal <-chan struct{}) error {
	select {
	case <-signal:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
