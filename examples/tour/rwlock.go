package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

// sharedLock shows rwlock.RWMutex: readers share the lock, a writer is alone, and all keep their
// order.
func sharedLock(ctx context.Context, t *tour) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &rwlockChapter{tour: t, path: t.root + "/rwlock"}
	r.mutex = rwlock.New(t.guide, r.path)
	defer func() {
		cancel()
		r.close()
	}()

	t.say("  Readers read together, a writer writes alone. A reader that comes after a writer waits for\n" +
		"  that writer, so neither readers nor writers starve.\n")
	var all [5]*party
	for i, p := range []party{
		{name: "reader 1"}, {name: "reader 2"}, {name: "writer 1", writes: true},
		{name: "reader 3"}, {name: "writer 2", writes: true},
	} {
		all[i] = &p
		if err := r.come(ctx, &p); err != nil {
			return err
		}

		if i < 2 {
			err = r.granted(ctx, &p, [...]string{"", ", together with reader 1"}[i])
		} else {
			err = r.waits(ctx, &p)
		}
		if err != nil {
			return err
		}

		if err := sleep(ctx, t.pace); err != nil {
			return err
		}
	}

	reader1, reader2, writer1, reader3, writer2 := all[0], all[1], all[2], all[3], all[4]

	t.say("\n  All are here. The readers leave, and the line moves.\n")
	if err := r.leaves(ctx, reader1); err != nil {
		return err
	}
	if err := r.leaves(ctx, reader2); err != nil {
		return err
	}
	if err := r.granted(ctx, writer1, ", alone"); err != nil {
		return err
	}
	if err := sleep(ctx, t.pace); err != nil {
		return err
	}

	t.tell(writer1.name, "downgrades", "to a reader, at the same place in line")
	if writer1.lease, err = writer1.lease.Downgrade(ctx); err != nil {
		return err
	}
	if err := r.granted(ctx, reader3, ", together with writer 1"); err != nil {
		return err
	}
	if err := sleep(ctx, t.pace); err != nil {
		return err
	}
	if err := r.leaves(ctx, writer1); err != nil {
		return err
	}
	if err := r.leaves(ctx, reader3); err != nil {
		return err
	}
	if err := r.granted(ctx, writer2, ", alone"); err != nil {
		return err
	}
	if err := sleep(ctx, t.pace); err != nil {
		return err
	}
	if err := r.leaves(ctx, writer2); err != nil {
		return err
	}

	t.say("\n  No writer came between what writer 1 wrote and what it read after that.")
	return nil
}

type rwlockChapter struct {
	*tour
	path    string
	mutex   *rwlock.RWMutex // the guide's
	clients []*protocol.Client
	waiting sync.WaitGroup
	holders []*party // at this moment
	token   int64    // the greatest of the parties that have left
}

// A party is a reader or a writer.
type party struct {
	name   string
	writes bool
	got    chan error // how its wait ended
	lease  *rwlock.Lease
}

// come makes a party join the line, in a session of its own.
func (r *rwlockChapter) come(ctx context.Context, p *party) error {
	c, err := r.connect(ctx)
	if err != nil {
		return err
	}

	r.clients = append(r.clients, c)
	m := rwlock.New(c, r.path, rwlock.WithData([]byte(p.name)))
	take := m.RLock
	if p.writes {
		take = m.Lock
	}

	p.got = make(chan error, 1)
	r.waiting.Go(func() {
		var err error
		p.lease, err = take(ctx)
		p.got <- err
	})

	return nil
}

// waits prints behind which contender a party is, as soon as it is in line.
func (r *rwlockChapter) waits(ctx context.Context, p *party) error {
	for {
		line, err := r.mutex.Contenders(ctx)
		if err != nil {
			return err
		}
		if n := len(line); n > 1 && string(line[n-1].Data) == p.name {
			r.tell(p.name, "waits in line", "behind "+string(line[n-2].Data))
			return nil
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// granted waits until a party has the lock, and fails if that breaks a promise.
func (r *rwlockChapter) granted(ctx context.Context, p *party, more string) error {
	select {
	case err := <-p.got:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}

	for _, h := range r.holders {
		if p.writes || h.lease.Exclusive() {
			return fmt.Errorf("%s and %s hold the lock together", h.name, p.name)
		}
	}

	if p.writes && p.lease.Token() <= r.token {
		return fmt.Errorf("%s has token %d, after %d", p.name, p.lease.Token(), r.token)
	}

	r.holders = append(r.holders, p)
	verb := "reads"
	if p.writes {
		verb = "writes"
	}

	r.tell(p.name, verb, fmt.Sprintf("token %d%s", p.lease.Token(), more))
	return nil
}

// leaves makes a party give back its lease. The others must be waiting until then.
func (r *rwlockChapter) leaves(ctx context.Context, p *party) error {
	if err := p.lease.Err(); err != nil {
		return err
	}
	for i, h := range r.holders {
		if h == p {
			r.holders = append(r.holders[:i:i], r.holders[i+1:]...)
			break
		}
	}
	r.token = max(r.token, p.lease.Token())
	r.tell(p.name, "gives it back")
	return p.lease.Unlock(ctx)
}

// close ends all sessions, and with them all leases and waits.
func (r *rwlockChapter) close() {
	for _, c := range r.clients {
		c.Close()
	}
	r.waiting.Wait()
}
