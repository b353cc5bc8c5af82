package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/lock"
)

const cycles = 20

// cost measures what a lock costs here.
func (e *examination) cost(ctx context.Context) {
	f := Finding{Check: "cost", Status: OK, Looked: fmt.Sprintf("%d locks taken and given back, and %d handed to a waiter of another session", cycles, cycles)}
	if !e.writable {
		e.unwritable(f.Check, f.Looked)
		return
	}

	cycle, err := e.lockCycles(ctx)
	if err == nil {
		var handOff time.Duration
		if handOff, err = e.handOffs(ctx); err == nil {
			f.Found = fmt.Sprintf("median: lock and unlock %v, hand-off %v", round(cycle), round(handOff))
		}
	}

	switch {
	case ctx.Err() != nil:
		return // which says nothing about the ensemble
	case err != nil:
		f.Status, f.Found, f.Do = Fail, err.Error(), "a lock could not be taken: see what the other checks say"
	case cycle > e.Timeout/6:
		f.Status, f.Do = Fail, "ask for a longer session timeout: what is held may be lost while a write takes that long"
	case cycle > e.Timeout/24:
		f.Status, f.Do = Warn, "ask for a longer session timeout, or look at the servers' disks and network"
	}

	e.report(f)
}

// lockCycles returns the median time to lock and unlock.
func (e *examination) lockCycles(ctx context.Context) (time.Duration, error) {
	m := lock.New(e.client, e.lockPath())
	var times []time.Duration
	for range cycles {
		began := time.Now()
		lease, err := m.Lock(ctx)
		if err != nil {
			return 0, err
		}
		if err := lease.Unlock(ctx); err != nil {
			return 0, err
		}
		times = append(times, time.Since(began))
	}
	return median(times), nil
}

// handOffs returns the median time from a call of Unlock to a waiter's grant.
func (e *examination) handOffs(ctx context.Context) (time.Duration, error) {
	other, err := e.connect(ctx, e.Servers)
	if err != nil {
		return 0, err
	}
	defer other.Close()

	here, there := lock.New(e.client, e.lockPath()), lock.New(other, e.lockPath())
	var times []time.Duration
	for range cycles {
		took, err := handOff(ctx, here, there)
		if err != nil {
			return 0, err
		}
		times = append(times, took)
	}
	return median(times), nil
}

func handOff(ctx context.Context, from, to *lock.Mutex) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lease, err := from.Lock(ctx)
	if err != nil {
		return 0, err
	}

	type grant struct {
		at  time.Time
		err error
	}

	granted := make(chan grant, 1)
	go func() {
		next, err := to.Lock(ctx)
		at := time.Now()
		if err == nil {
			err = next.Unlock(ctx)
		}
		granted <- grant{at, err}
	}()
	for waiting := false; !waiting; {
		select {
		case g := <-granted: // before it could be: it has failed
			return 0, errors.Join(g.err, lease.Unlock(ctx))
		default:
		}
		line, err := from.Contenders(ctx)
		if err != nil {
			cancel()
			<-granted
			return 0, err
		}
		waiting = len(line) > 1
	}

	began := time.Now()
	if err := lease.Unlock(ctx); err != nil {
		cancel()
		<-granted
		return 0, err
	}

	g := <-granted
	return g.at.Sub(began), g.err
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}
