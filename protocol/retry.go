package protocol

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
)

// Do runs op, which makes one call of zk.Conn, under s until its outcome is definite: it is repeated, with the
// client's back-off in between, when the connection broke, whether or not the server may have executed it. So op
// must be safe to repeat, as reads are, and deletes of names that are never used again if [zk.ErrNoNode] is taken
// for success. [Settle] is for those that are not.
//
// Do blocks until the server has answered, and returns what it said, [zk.ErrNoNode] for example. If ctx ends first
// it returns ctx's error, if the session is over an error that wraps [ErrLost], after [Client.Close] one that wraps
// [ErrClosed]; the call that is under way then goes on behind its back and what it returns is dropped. It is safe
// for concurrent use.
func Do[T any](ctx context.Context, s *Session, op func(*zk.Conn) (T, error)) (T, error) {
	return Settle(ctx, s, op, nil)
}

// Settle is Do for an op that must not happen twice. After an attempt that may have been executed it calls settle,
// which finds out whether it was: done reports that, and then the result is settle's. settle may rely on one thing:
// if the attempt was not executed by the time that a Sync which it makes has been answered, it never will be.
func Settle[T any](ctx context.Context, s *Session, op func(*zk.Conn) (T, error),
	settle func(context.Context) (v T, done bool, err error)) (T, error) {
	var pause backoff.BackOff
	for {
		v, out, err := once(ctx, s, op)
		if out == unknown && settle != nil && ctx.Err() == nil && s.Err() == nil {
			if settled, done, failed := settle(ctx); done || failed != nil {
				return settled, failed
			}
		}
		if out == definite {
			return v, err
		}
		if over := s.Err(); over != nil {
			return v, over
		}
		if ctx.Err() != nil {
			if !errors.Is(err, ctx.Err()) {
				err = fmt.Errorf("%w: %w", s.ended(ctx), err)
			}
			return v, err
		}
		if pause == nil {
			pause = s.client.newBackOff()
		}
		if failed := s.client.pause(ctx, s.Done(), pause.NextBackOff(), err); failed != nil {
			return v, failed
		}
	}
}

// once makes one attempt. What op returns is only looked at while ctx and the session last.
func once[T any](ctx context.Context, s *Session, op func(*zk.Conn) (T, error)) (v T, out outcome, err error) {
	if err := s.await(ctx); err != nil {
		return v, notSent, err
	}
	if ctx == s.life { // zk.Conn ends the call when the session does
		v, err := op(s.conn)
		return v, outcomeOf(err), err
	}
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
		return r.v, outcomeOf(r.err), r.err
	case <-ctx.Done():
	case <-s.Done():
	}
	return v, unknown, s.ended(ctx)
}

// pause sleeps between two attempts, the first of which died of err, or until over is closed. It returns an error if
// ctx ends or the back-off does.
func (c *Client) pause(ctx context.Context, over <-chan struct{}, d time.Duration, err error) error {
	if d == backoff.Stop {
		return fmt.Errorf("given up: %w", err)
	}
	c.log.Debug("trying again", "error", err, "after", d)
	c.observe(Event{Kind: Retried, Duration: d, Err: err})
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-over:
	case <-ctx.Done():
		select {
		case <-over: // which is what has ended ctx, if that is a session's
		default:
			return fmt.Errorf("%w: %w", contextError(ctx), err)
		}
	}
	return nil
}

// finishing runs work, which changes something at the servers, to its end even if ctx ends before: then its result
// goes to undo, in the background, so that nothing is left behind. The context that work gets lasts as long as the
// session does. work itself looks at ctx where it is about to begin something that nobody wants any more.
func finishing[T any](ctx context.Context, s *Session, work func(context.Context) (T, error), undo func(T)) (T, error) {
	type result struct {
		v   T
		err error
	}
	var zero T
	if ctx.Done() == nil {
		r := result{err: ErrClosed}
		s.client.join(func() { r.v, r.err = work(s.life) })
		return r.v, r.err
	}
	answer := make(chan result)
	started := s.client.spawn(func() {
		v, err := work(s.life)
		select {
		case answer <- result{v, err}:
		case <-ctx.Done():
			if err == nil && undo != nil {
				undo(v)
			}
		}
	})
	if !started {
		return zero, ErrClosed
	}
	select {
	case r := <-answer:
		return r.v, r.err
	case <-ctx.Done():
		return zero, contextError(ctx)
	}
}

// sync makes the server that the session is connected to catch up with the leader, so that a read after it sees
// everything that had happened before. Should the server not answer, then neither does it answer the keeper of the
// session's trust, who asks too while anybody is engaged, and cuts the connection.
func (s *Session) sync(ctx context.Context, path string) error {
	s.engage()
	defer s.disengage()
	_, err := Do(ctx, s, func(c *zk.Conn) (string, error) { return c.Sync(path) })
	return err
}

// remove deletes a node whose name is never used again. It returns [zk.ErrNoNode] if somebody else had done so.
func (s *Session) remove(ctx context.Context, path string) error {
	s.engage()
	defer s.disengage()
	repeated := false
	_, err := Do(ctx, s, func(c *zk.Conn) (struct{}, error) {
		err := c.Delete(path, -1)
		if repeated && errors.Is(err, zk.ErrNoNode) {
			err = nil // it was the attempt before
		}
		repeated = repeated || outcomeOf(err) == unknown
		return struct{}{}, err
	})
	return err
}
