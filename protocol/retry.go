package protocol

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
)

// Do runs op, which makes one call of zk.Conn, under s until its outcome is definite: it is
// repeated, with the client's back-off in between, when the connection broke, whether or not the
// server may have executed it. So op must be safe to repeat, as reads are, and deletes of names
// that are never used again if [zk.ErrNoNode] is taken for success. [DoOnce] is for those that are
// not.
//
// Do blocks until the server has answered, and returns what it said, [zk.ErrNoNode] for example. If
// ctx ends first it returns ctx's error, if the session is over an error that wraps [ErrLost],
// after [Client.Close] one that wraps [ErrClosed]; the call that is under way then goes on behind
// its back and what it returns is dropped. It is safe for concurrent use.
func Do[T any](ctx context.Context, s *Session, op func(*zk.Conn) (T, error)) (T, error) {
	return DoOnce(ctx, s, op, nil)
}

// DoOnce is Do for an op that must not happen twice. After an attempt that may have been executed
// it calls settle, which finds out whether it was: done reports that, and then the result is
// settle's. settle may rely on one thing: if the attempt was not executed by the time that a
// [Session.Sync] which it makes has been answered, it never will be. Otherwise op is called again.
// An error of settle is returned as it is: the outcome is then unknown. settle is not called once
// ctx has ended or s is over. Work of [Detach] has a ctx that lasts as long as s.
//
// Where the client's back-off ends by itself Do and DoOnce return the last error. Work that must be
// finished, which is what gets its ctx from [Detach] or [Session.Go], is different: its caller gets
// that error, and the work goes on with the default back-off until it is done or the session is
// over.
func DoOnce[T any](ctx context.Context, s *Session, op func(*zk.Conn) (T, error),
	settle func(context.Context) (v T, done bool, err error)) (T, error) {
	if ctx == nil {
		var zero T
		return zero, errNilContext
	}
	d := detachedFrom(ctx)
	var pause backoff.BackOff
	var last error
	refused := false

	for {
		v, out, err := once(ctx, s, op)
		again := refused
		refused = out == unknown && s.refuses(err)

		if out == unknown && settle != nil && ctx.Err() == nil && s.Err() == nil {
			if settled, done, failed := settle(ctx); done || failed != nil {
				return settled, failed
			}
		}

		if refused && again {
			return v, s.tooLarge(err)
		}
		if out == definite {
			return v, s.client.explain(err)
		}
		if over := s.Err(); over != nil {
			return v, over
		}
		if ctx.Err() != nil {
			// What the caller wants to know is why it had to wait.
			if !errors.Is(err, ctx.Err()) {
				err = fmt.Errorf("%w: %w", s.ended(ctx), err)
			} else if last != nil {
				err = fmt.Errorf("%w: %w", err, last)
			}
			return v, err
		}

		last = err
		d.note(err)

		if pause == nil {
			pause = s.client.newBackOff()
		}
		wait := pause.NextBackOff()
		if wait == backoff.Stop && d != nil {
			d.giveUp(givenUp(err))
			pause = defaultBackOff()
			wait = pause.NextBackOff()
		}
		if failed := s.client.pause(ctx, s, s.Done(), wait, err); failed != nil {
			return v, failed
		}
		if refused && settle == nil {
			// The next connection has to work: settle has made sure of that.
			s.sync(ctx, s.Path("/"))
		}
	}
}

// once makes one attempt. What op returns is only looked at while ctx and the session last.
func once[T any](ctx context.Context, s *Session, op func(*zk.Conn) (T, error)) (v T, out outcome, err error) {
	if err := s.await(ctx); err != nil {
		return v, notSent, err
	}

	if _, ok := ctx.(*detached); ok { // zk.Conn ends the call when the session does
		v, err := op(s.conn)
		return v, outcomeOf(err), named(err)
	}
	return outlasting(ctx, s, op)
}

// outlasting is once for an op that may outlast ctx. It runs in a goroutine of its own.
func outlasting[T any](ctx context.Context, s *Session, op func(*zk.Conn) (T, error)) (v T, out outcome, err error) {
	type result struct {
		v   T
		err error
	}
	answer := make(chan result, 1)
	started := s.client.spawn(func() {
		v, err := op(s.conn)
		answer <- result{v, err}
	})
	if !started {
		return v, notSent, ErrClosed
	}

	select {
	case r := <-answer:
		return r.v, outcomeOf(r.err), named(r.err)
	case <-ctx.Done():
	case <-s.Done():
	}
	return v, unknown, s.ended(ctx)
}

// pause sleeps between two attempts, the first of which was made under s and died of err, or until
// over is closed. It returns an error if ctx ends or the back-off does.
func (c *Client) pause(ctx context.Context, s *Session, over <-chan struct{}, d time.Duration, err error) error {
	if d == backoff.Stop {
		return givenUp(err)
	}
	c.log.Debug("trying again", "error", err, "after", d)
	if c.observed() {
		e := Event{Kind: EventRetried, Context: Caller(ctx), Session: s.ID(), Duration: d, Err: err}
		s.recipe.name(&e)
		c.observe(e)
	}
	t := time.NewTimer(max(d, 1)) // see sleep
	defer t.Stop()
	select {
	case <-t.C:
	case <-over:
	case <-ctx.Done():
		select {
		case <-over: // which is what has ended ctx, if that is a session's
		default:
			return fmt.Errorf("%w: %w", s.ended(ctx), err)
		}
	}
	return nil
}

// errGivenUp is wrapped by the error of a call whose back-off came to its end.
var errGivenUp = errors.New("given up")

func givenUp(err error) error { return fmt.Errorf("%w: %w", errGivenUp, err) }
