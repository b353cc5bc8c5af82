// Package pace asks a user's back-off for pauses. It is foreign code, so it can block, panic, or
// end its goroutine.
package pace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// ErrStopped is the error of a back-off that has ended.
var ErrStopped = errors.New("given up")

// Pauses come from one back-off. It is not safe for concurrent use.
type Pauses struct {
	backoff backoff.BackOff
	foreign bool
}

// Reset makes the next pause come from a new back-off.
func (p *Pauses) Reset() { *p = Pauses{} }

// Default returns the next pause of a back-off that create makes and that is known to behave.
func (p *Pauses) Default(create func() backoff.BackOff) time.Duration {
	if p.backoff == nil || p.foreign {
		*p = Pauses{backoff: create()}
	}
	return p.backoff.NextBackOff()
}

// Next returns the next pause of a back-off that the user's function makes. If there is none, the
// error says why. Next blocks until the back-off has answered. If ctx ends first, it returns why.
func (p *Pauses) Next(ctx context.Context, create func() backoff.BackOff) (time.Duration, error) {
	used := p.backoff
	pause, err := Call(ctx, "back-off", func() (time.Duration, error) {
		if used == nil {
			used = create()
		}
		if used == nil {
			return 0, errors.New("back-off is nil")
		}
		pause := used.NextBackOff()
		if pause == backoff.Stop {
			return 0, ErrStopped
		}
		return pause, nil
	}, nil)
	if ctx.Err() != nil {
		p.Reset() // the back-off may still be running
		return 0, ctx.Err()
	}

	p.backoff, p.foreign = used, true
	return pause, err
}

// Call calls f, a user's function, in a goroutine of its own, and returns what f returns. Its error
// says so if f panics or ends its goroutine. If ctx ends first, Call returns ctx's cause, and late
// (unless it is nil) gets what f returns later without an error.
func Call[T any](ctx context.Context, what string, f func() (T, error), late func(T)) (v T, err error) {
	type result struct {
		v   T
		err error
	}
	// It has no room, so that a result goes either to the caller or to late.
	results := make(chan result)
	go func() {
		r, returned := result{}, false
		defer func() {
			if !returned {
				r.err = Foreign(what, recover())
			}
			select {
			case results <- r:
			case <-ctx.Done():
				if late != nil && r.err == nil {
					late(r.v)
				}
			}
		}()
		r.v, r.err = f()
		returned = true
	}()

	select {
	case r := <-results:
		return r.v, r.err
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
}

// Foreign returns the error for user's code that didn't return properly (it panicked, or ended its
// goroutine).
func Foreign(what string, panicked any) error {
	if panicked == nil {
		return fmt.Errorf("%s ended its goroutine", what)
	}
	return fmt.Errorf("%s panicked: %v", what, panicked)
}
