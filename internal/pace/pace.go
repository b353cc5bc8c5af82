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
// error says why. Next blocks until the back-off has answered. If ctx ends first, it returns ctx's
// error.
func (p *Pauses) Next(ctx context.Context, create func() backoff.BackOff) (time.Duration, error) {
	type result struct {
		backoff backoff.BackOff
		pause   time.Duration
		err     error
	}
	answer := make(chan result, 1)
	r := result{backoff: p.backoff}
	go func() {
		returned := false
		defer func() {
			if !returned {
				r.err = Foreign("back-off", recover())
			}
			answer <- r
		}()
		if r.backoff == nil {
			r.backoff = create()
		}
		if r.backoff == nil {
			r.err = errors.New("back-off is nil")
		} else if r.pause = r.backoff.NextBackOff(); r.pause == backoff.Stop {
			r.err = ErrStopped
		}
		returned = true
	}()
	select {
	case r := <-answer:
		p.backoff, p.foreign = r.backoff, true
		return r.pause, r.err
	case <-ctx.Done():
		p.Reset() // the back-off may still be running
		return 0, ctx.Err()
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
