package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

const cycles = 5

// cost measures the time for locking and for a hand-off.
func (e *examination) cost(ctx context.Context) Finding {
	f := Finding{Check: "cost", Status: OK, Looked: fmt.Sprintf("%d locks taken and given back, and %d handed to a waiter of another session", cycles, cycles)}

	cycle, err := measure(func() (time.Duration, error) {
		began := time.Now()
		err := lock.New(e.client, e.lockPath()).Do(ctx, func(context.Context, *lock.Lease) error { return nil })
		return time.Since(began), err
	})
	if err == nil {
		var other *protocol.Client
		if other, err = e.connect(ctx, e.Servers); err == nil {
			defer other.Close()
			var handOff time.Duration
			handOff, err = measure(func() (time.Duration, error) { return e.handOff(ctx, other) })
			f.Found = fmt.Sprintf("median: lock and unlock %v, hand-off %v", round(cycle), round(handOff))
		}
	}

	switch {
	case err != nil:
		f.Status, f.Found, f.Do = Fail, err.Error(), "a lock could not be taken: see what the other checks say"
	case cycle > e.Timeout/6:
		f.Status, f.Do = Fail, "ask for a longer session timeout: what is held may be lost while a write takes that long"
	case cycle > e.Timeout/24:
		f.Status, f.Do = Warn, "ask for a longer session timeout, or look at the servers' disks and network"
	}
	return f
}

// measure returns the median time of several cycles.
func measure(cycle func() (time.Duration, error)) (time.Duration, error) {
	times := make([]time.Duration, cycles)
	for i := range times {
		var err error
		if times[i], err = cycle(); err != nil {
			return 0, err
		}
	}

	slices.Sort(times)
	return times[cycles/2], nil
}

// handOff returns the time from Unlock to the grant for a waiter in another session.
func (e *examination) handOff(ctx context.Context, other *protocol.Client) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lease, err := lock.New(e.client, e.lockPath()).Lock(ctx)
	if err != nil {
		return 0, err
	}

	granted := make(chan error, 1)
	var at time.Time // read it after granted
	go func() {
		granted <- lock.New(other, e.lockPath()).Do(ctx, func(context.Context, *lock.Lease) error {
			at = time.Now()
			return nil
		})
	}()

	// Unlock once the waiter is in line.
	s, err := recipe.SessionOf(ctx, e.client)
	if err == nil {
		limited, stop := context.WithTimeout(ctx, e.Limit) // the waiter can have failed
		err = s.WaitChildren(limited, e.lockPath(), func(line []string) bool { return len(line) > 1 })
		stop()
	}

	began := time.Now()
	if err := errors.Join(err, lease.Unlock(ctx)); err != nil {
		cancel()
		return 0, errors.Join(err, <-granted)
	}

	err = <-granted
	return at.Sub(began), err
}
