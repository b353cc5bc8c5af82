package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/pace"
	"github.com/zkrecipes/zkrecipes/internal/trust"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// Do and DoOnce are documented in package protocol/recipe.
func Do[T any](ctx context.Context, b *Bound, op func(*zk.Conn) (T, error)) (T, error) {
	return attempts(ctx, b, op, nil, false)
}

func DoOnce[T any](ctx context.Context, b *Bound, op func(*zk.Conn) (T, error),
	settle func(context.Context) (v T, done bool, err error)) (T, error) {
	return attempts(ctx, b, op, settle, settle != nil)
}

// Change is [Do] for a change that can be repeated, and whose caller must know whether it was
// perhaps made.
func Change[T any](ctx context.Context, b *Bound, op func(*zk.Conn) (T, error)) (T, error) {
	return attempts(ctx, b, op, nil, true)
}

// attempts is [DoOnce] if settle is not nil, and otherwise [Do]. If changes is true, the error says
// whether an attempt was perhaps executed.
func attempts[T any](ctx context.Context, b *Bound, op func(*zk.Conn) (T, error),
	settle func(context.Context) (v T, done bool, err error), changes bool) (v T, err error) {
	if ctx == nil {
		return v, ErrNilContext
	}
	b.check(ctx)
	c := series{Bound: b, began: time.Now(), changes: changes}
	defer c.unsure(false)

	for {
		v, out, err := once(ctx, b, c.began, op)
		if out == conn.Definite {
			// A refusal says nothing about the attempts before it.
			return v, c.uncertain(b.View.explain(err))
		}
		c.unsure(c.pending || out == conn.Unknown)

		// Find out whether it was executed. Only behind a fence is that certain.
		if c.pending && settle != nil && ctx.Err() == nil && b.Err() == nil {
			if failed := b.Fence(ctx); failed != nil {
				return v, c.uncertain(failed)
			}
			found, done, failed := settle(ctx)
			if done || failed != nil {
				if done {
					settled(err, true)
				}
				return found, failed
			}
			settled(err, false)
			c.unsure(false)
		}

		if over := c.pause(ctx, err); over != nil {
			return v, c.uncertain(over)
		}
	}
}

// A series is the attempts of one call.
type series struct {
	*Bound
	began   time.Time
	changes bool // the caller must know whether an attempt was perhaps executed
	pending bool // an attempt was perhaps executed
	pauses  pace.Pauses
	last    error // of the attempt before
}

// unsure notes whether an attempt was perhaps executed.
func (c *series) unsure(pending bool) {
	c.pending = pending
	if c.changes {
		c.Work.unsure(pending)
	}
}

// uncertain returns err, and that the outcome is unknown if it is.
func (c *series) uncertain(err error) error {
	if err != nil && c.pending && c.changes {
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return err
}

// pause blocks until there can be another attempt. If there can be none, it returns why. err is the
// error of the attempt that failed.
func (c *series) pause(ctx context.Context, err error) error {
	if over := c.Err(); over != nil {
		return over
	}
	if errors.Is(err, errSilent) {
		return err
	}
	if ctx.Err() != nil {
		// The caller wants to know why it had to wait.
		if !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %w", c.Conn.Why(ctx), err)
		} else if c.last != nil {
			err = fmt.Errorf("%w: %w", err, c.last)
		}
		return err
	}

	c.last = err
	c.Work.note(err)
	wait, stopped := c.nextPause(ctx, &c.pauses)
	if stopped != nil {
		stopped = fmt.Errorf("%w: %w", stopped, err)
		if c.Work == nil {
			return stopped
		}
		c.Work.GiveUp(stopped)
		wait = c.pauses.Default(DefaultBackOff)
	}

	return c.Pause(ctx, c.Done(), wait, err)
}

// check panics if work uses the session of its caller because then its attempts would end with the
// caller's.
func (b *Bound) check(ctx context.Context) {
	if w := WorkOf(ctx); w != nil && !w.like(b.Work) {
		panic("recipe: work of Detach uses a session other than the one it was given")
	}
}

// once makes one attempt. It uses op's result only if ctx and the session last until then.
func once[T any](ctx context.Context, b *Bound, began time.Time, op func(*zk.Conn) (T, error)) (v T, out conn.Outcome, err error) {
	if err := b.await(ctx, began); err != nil {
		return v, conn.NotSent, err
	}
	return conn.Attempt(ctx, b.Conn, op)
}

// Pause sleeps between two attempts, or until over is closed. err is the error of the first. Pause
// returns an error if ctx ends.
func (b *Bound) Pause(ctx context.Context, over <-chan struct{}, d time.Duration, err error) error {
	b.View.Log.Debug("trying again", "error", err, "after", d)
	if b.Retried != nil {
		b.Retried(ctx, b.ID(), d, err)
	}

	t := time.NewTimer(max(d, 1)) // see conn.Sleep
	defer t.Stop()
	select {
	case <-t.C:
	case <-over:
	case <-ctx.Done():
		// The end of a session also ends the contexts of its work.
		if !conn.IsClosed(over) {
			return fmt.Errorf("%w: %w", b.Conn.Why(ctx), err)
		}
	}

	return nil
}

// nextPause returns the next pause between two attempts. Its error says why there is none. For work
// whose caller has left (or that has none) it calls no user's function because a user of another
// view can be waiting for the same work.
func (b *Bound) nextPause(ctx context.Context, p *pace.Pauses) (time.Duration, error) {
	if b.Work != nil {
		if b.Work.Caller == nil || b.Work.Unwanted() != nil {
			return p.Default(DefaultBackOff), nil
		}
		ctx = b.Work.Caller
	}
	return b.View.NextPause(ctx, b.Life, p)
}

// Fence and Confirm are documented in package protocol/recipe.
func (b *Bound) Fence(ctx context.Context) error {
	b.Engage()
	defer b.Disengage()

	_, err := Do(ctx, b, func(*zk.Conn) (struct{}, error) {
		w := b.Conn.Link()
		if w == nil {
			return struct{}{}, zk.ErrConnectionClosed
		}

		r := w.Ask(b.fence())
		if r.By == trust.Quorum {
			return struct{}{}, nil
		}

		err := conn.ErrorOf(r.Code)
		if conn.OutcomeOf(err) == conn.Definite && r.Code != zkwire.CodeAuthRequired {
			err = fmt.Errorf("%w: %w", conn.ErrUnproven, err) // which Do repeats
		}

		return struct{}{}, err
	})

	return err
}

func (b *Bound) Confirm(ctx context.Context) (asked bool, err error) {
	if b.confirmed() {
		return false, nil
	}
	return true, b.Fence(ctx)
}

// Insist calls op until it succeeds or finds that the node is gone, or until the session ends, if b
// is for work. The work's caller gets the first error. Then Insist repeats op in the background
// because other clients can remove the error's cause. For callers that wait, it calls op once. path
// is for the log.
func (b *Bound) Insist(ctx context.Context, path string, op func() error) error {
	var pauses pace.Pauses
	for first := true; ; first = false {
		err := op()
		if err == nil || errors.Is(err, zk.ErrNoNode) || b.Work == nil || ctx.Err() != nil || b.Err() != nil {
			return err
		}

		if first {
			b.View.Log.Error("not cleaned up yet", "path", path, "error", err)
		}

		b.Work.GiveUp(err)
		if failed := b.Pause(ctx, b.Done(), pauses.Default(insistent), err); failed != nil {
			return err
		}
	}
}

// insistent returns the back-off of [Bound.Insist].
func insistent() backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(time.Minute),
		backoff.WithMaxElapsedTime(0))
}
