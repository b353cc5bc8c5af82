package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// A result is the result of a round.
type result struct {
	both  bool // two clients believed at the same time that they held the lock
	late  bool // the first client wrote after its successor had written
	taken      // which stores accepted that write
}

// leapLeases is how many times longer leases are in rounds with leaping clocks. No lease has to run
// out in them, so the lease only has to outlast a busy machine.
const leapLeases = 3

// A round is one run of two clients that contend for a lock and write to a store. The fault happens
// to the first client.
type round struct {
	kind  kind
	fault fault
	lease time.Duration

	// Drawn by chance, but equal for all kinds of lock.
	work   time.Duration // of the first client, before the fault
	leap   time.Duration
	choice *rand.Rand // which servers leap

	service service
	network *network // of the first client
	second  client
	granted chan grant // the second client's lock
	store   store
	wrote   bool // the second client has written
	result
}

func newRound(k kind, f fault, lease time.Duration, chance *rand.Rand) *round {
	if f.leap > 0 {
		lease *= leapLeases
	}
	return &round{
		kind: k, fault: f, lease: lease,
		work:   time.Duration(chance.Int64N(int64(lease / 8))),
		leap:   lease + time.Duration(chance.Int64N(int64(100*lease))),
		choice: chance,
	}
}

type grant struct {
	holding holding
	err     error
}

// run runs the round, and returns once nothing of it is left.
func (r *round) run(ctx context.Context) (result, error) {
	var err error
	if r.service, err = r.kind.start(r.lease); err != nil {
		return result{}, err
	}
	defer r.service.close()

	// Only the first client's network is ever stopped.
	r.network = newNetwork()
	defer r.network.close()
	first, err := r.service.connect(ctx, r.network)
	if err != nil {
		return result{}, err
	}

	defer first.close()
	defer r.network.run()

	sound := newNetwork()
	defer sound.close()
	if r.second, err = r.service.connect(ctx, sound); err != nil {
		return result{}, err
	}
	defer r.second.close()

	// The first client has the lock, and the second client waits for it.
	a, err := first.lock(ctx)
	if err != nil {
		return result{}, err
	}

	ctx, cancel := context.WithCancel(ctx)
	r.granted = make(chan grant, 1)
	var waiter sync.WaitGroup
	defer func() { cancel(); waiter.Wait() }()
	waiter.Go(func() {
		b, err := r.second.lock(ctx)
		r.granted <- grant{b, err}
	})

	if err := r.workFirst(ctx, a); err != nil {
		return result{}, err
	}

	r.network.run()
	a.unlock(ctx)
	err = r.finish(ctx)
	return r.result, err
}

// workFirst is the work of the first client, which holds the lock as a.
func (r *round) workFirst(ctx context.Context, a holding) error {
	if err := sleep(ctx, r.work); err != nil {
		return err
	}

	if err := r.reached(ctx, atWork, a); err != nil {
		return err
	}

	if !a.held(ctx) {
		return nil // the client has noticed, and does not write
	}
	if err := r.reached(ctx, looked, a); err != nil {
		return err
	}

	r.store.claim(a.value())
	if err := r.reached(ctx, claimed, a); err != nil {
		return err
	}

	r.network.run() // the write that ZooKeeper checks waits until it arrives
	r.late = r.wrote
	var err error
	r.taken, err = r.write(ctx, a)
	return err
}

// reached makes the fault happen if the first client has reached its moment.
func (r *round) reached(ctx context.Context, m moment, a holding) error {
	if m != r.fault.at {
		return nil
	}

	if r.fault.pause {
		r.network.stop()
		defer r.network.run()
		b := <-r.granted
		return r.workSecond(ctx, b, a)
	}

	if r.fault.cutOff {
		r.network.stop()
	}
	r.service.leap(r.fault.leap, r.leap, r.choice)
	select {
	case b := <-r.granted:
		return r.workSecond(ctx, b, a)
	case <-time.After(r.lease / 2):
		return nil
	}
}

// workSecond is the work of the second client, while the first client has (or had) the lock as a.
func (r *round) workSecond(ctx context.Context, b grant, a holding) error {
	for ; b.err == nil; b.holding, b.err = r.second.lock(ctx) {
		// By now a client that is notified of its loss has been notified.
		if err := sleep(ctx, r.lease/8); err != nil {
			return err
		}

		if b.holding.held(ctx) {
			// A loss is final. So if a is still held, both have held since b was granted.
			r.both = r.both || a != nil && a.held(ctx)

			r.store.claim(b.holding.value())
			t, err := r.write(ctx, b.holding)
			if err != nil {
				return err
			}
			r.wrote = t.tokens == r.kind.tokens && t.check == r.kind.tokens
		}

		b.holding.unlock(ctx)
		if r.wrote {
			return nil
		}
		// This process was starved for longer than the lease, so the client needs the lock again.
	}

	return b.err
}

// finish lets the second client work, if it hasn't been granted the lock before.
func (r *round) finish(ctx context.Context) error {
	if r.wrote {
		return nil
	}
	return r.workSecond(ctx, <-r.granted, nil)
}

// write writes to all stores.
func (r *round) write(ctx context.Context, h holding) (taken, error) {
	t := r.store.write(h.value(), h.token())
	if !r.kind.tokens {
		return t, nil
	}

	var err error
	t.check, err = h.write(ctx)
	return t, err
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
