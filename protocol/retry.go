package protocol

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
// it makes a [Session.Fence], and then calls settle, which looks whether it was: done reports that,
// and then the result is settle's. Otherwise the attempt was not executed and never will be, and op
// is called again. An error of settle is returned as it is: the outcome is then unknown. settle is
// not called once ctx has ended or s is over.
//
// If DoOnce ends while it is not known whether an attempt was executed, because of ctx, of s or of
// the back-off, its error also wraps [ErrUncertain].
//
// Where the client's back-off ends by itself Do and DoOnce return the last error. Work that must be
// finished, which is what gets its ctx from [Detach] or [Session.Go], is different: its caller gets
// that error, and the work goes on with the default back-off until it is done or the session is
// over.
func DoOnce[T any](ctx context.Context, s *Session, op func(*zk.Conn) (T, error),
	settle func(context.Context) (v T, done bool, err error)) (T, error) {
	return attempts(ctx, s, op, settle, settle != nil)
}

// change is [Do] for a change that may be repeated, whose caller has to know if it was perhaps made.
func change[T any](ctx context.Context, s *Session, op func(*zk.Conn) (T, error)) (T, error) {
	return attempts(ctx, s, op, nil, true)
}

// attempts is [DoOnce] if settle is not nil, and otherwise Do. If changes is true, the error says
// whether an attempt may have been executed.
func attempts[T any](ctx context.Context, s *Session, op func(*zk.Conn) (T, error),
	settle func(context.Context) (v T, done bool, err error), changes bool) (T, error) {
	if ctx == nil {
		var zero T
		return zero, errNilContext
	}
	s.check(ctx)
	var pauses pace.Pauses
	var last error
	began := time.Now()
	if changes {
		defer s.work.unsure(false)
	}
	pending := false // an attempt may have been executed
	uncertain := func(err error) error {
		if pending && changes {
			return fmt.Errorf("%w: %w", ErrUncertain, err)
		}
		return err
	}

	for {
		v, out, err := once(ctx, s, began, op)
		if out == conn.Definite {
			if err = s.client.explain(err); err != nil { // which says nothing of the attempts before
				err = uncertain(err)
			}
			return v, err
		}

		pending = pending || out == conn.Unknown
		if changes {
			s.work.unsure(pending)
		}
		if pending && settle != nil && ctx.Err() == nil && s.Err() == nil {
			if failed := s.Fence(ctx); failed != nil {
				return v, uncertain(failed)
			}
			found, done, failed := settle(ctx)
			if done || failed != nil {
				if done {
					settled(err, true)
				}
				return found, failed
			}
			settled(err, false)
			pending = false
			s.work.unsure(false)
		}

		if over := s.Err(); over != nil {
			return v, uncertain(over)
		}
		if errors.Is(err, errSilent) {
			return v, uncertain(err)
		}
		if ctx.Err() != nil {
			// What the caller wants to know is why it had to wait.
			if !errors.Is(err, ctx.Err()) {
				err = fmt.Errorf("%w: %w", s.conn.Why(ctx), err)
			} else if last != nil {
				err = fmt.Errorf("%w: %w", err, last)
			}
			return v, uncertain(err)
		}

		last = err
		s.work.note(err)

		wait, stopped := s.nextPause(ctx, &pauses)
		if stopped != nil {
			stopped = fmt.Errorf("%w: %w", stopped, err)
			if s.work == nil {
				return v, uncertain(stopped)
			}
			s.work.giveUp(stopped)
			wait = pauses.Default(defaultBackOff)
		}
		if failed := s.client.pause(ctx, s, s.Done(), wait, err); failed != nil {
			return v, uncertain(failed)
		}
	}
}

// of returns s for the work whose context ctx is, if it is one. It is for the methods of values that
// belong to a session, and are not given one.
func (s *Session) of(ctx context.Context) *Session {
	if d, inside := ctx.(detachedContext); inside && d.work != s.work {
		return s.in(d.work)
	}
	return s
}

// check panics if work uses the session of its caller: its attempts would not go on.
func (s *Session) check(ctx context.Context) {
	if d, inside := ctx.(detachedContext); inside && d.work != s.work {
		panic("protocol: work of Detach uses a session other than the one it was given")
	}
}

// once makes one attempt. What op returns is only looked at while ctx and the session last.
func once[T any](ctx context.Context, s *Session, began time.Time, op func(*zk.Conn) (T, error)) (v T, out conn.Outcome, err error) {
	if err := s.await(ctx, began); err != nil {
		return v, conn.NotSent, err
	}
	return conn.Attempt(ctx, s.conn, func(c *zk.Conn) (v T, err error) {
		defer caught(&err)
		return op(c)
	})
}

// pause sleeps between two attempts, the first of which was made under s and died of err, or until
// over is closed. It returns an error if ctx ends.
func (c *Client) pause(ctx context.Context, s *Session, over <-chan struct{}, d time.Duration, err error) error {
	c.log.Debug("trying again", "error", err, "after", d)
	if c.observed() {
		e := Event{Kind: EventRetried, Context: ctx, Session: s.ID(), Duration: d, Err: err}
		s.recipe.name(&e)
		c.observe(e)
	}
	t := time.NewTimer(max(d, 1)) // see conn.Sleep
	defer t.Stop()
	select {
	case <-t.C:
	case <-over:
	case <-ctx.Done():
		select {
		case <-over: // which is what has ended ctx, if that is a session's
		default:
			return fmt.Errorf("%w: %w", s.conn.Why(ctx), err)
		}
	}
	return nil
}

// nextPause returns the next pause between two attempts under s. Its error says why there is none. Work
// that nobody waits for, any more or at all, calls no function of the user's, who may wait for the
// same work through another view.
func (s *Session) nextPause(ctx context.Context, p *pace.Pauses) (time.Duration, error) {
	if s.work != nil {
		if s.work.caller == nil || s.work.unwanted() != nil {
			return p.Default(defaultBackOff), nil
		}
		ctx = s.work.caller
	}
	return s.client.nextPause(ctx, s.life, p)
}

// nextPause returns the next pause of the view's back-off. If one of the contexts ends first, there is
// no pause.
func (c *Client) nextPause(ctx, life context.Context, p *pace.Pauses) (time.Duration, error) {
	if c.newBackOff == nil {
		return p.Default(defaultBackOff), nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	d, err := p.Next(ctx, c.newBackOff)
	if ctx.Err() != nil {
		return 0, nil
	}
	return d, err
}

// explain adds to the error of a request who the client is, if it lacks a permission.
func (c *Client) explain(err error) error {
	switch {
	case !errors.As(err, new(*conn.DeniedError)):
		return err
	case len(c.ensemble.Credentials) == 0:
		return fmt.Errorf("%w (the client has no credentials: see WithAuth)", err)
	}
	return fmt.Errorf("%w (the client is %s)", err, c.identities())
}

func defaultBackOff() backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0),
	)
}

// Fence blocks until a quorum of the ensemble has voted on a write that s makes, which changes
// nothing and needs no permission. Every request that s has sent before was then executed, or never
// will be, over whatever connection and member it went; and reads after it see what was executed.
//
// That is how an outcome that is unknown is settled: fence, then look. [DoOnce] does so by itself. A
// [Session.Sync] will not do. A leader may answer one before it commits what it has proposed, and
// does so where zookeeper.forward_learner_requests_to_commit_processor_disabled is set; a leader that
// was deposed answers one without asking anybody.
//
// A fence costs the ensemble a transaction, so it is for what rarely happens. If the connection
// breaks, or a member answers by itself, Fence sends another one. Its errors are those of [Do].
func (s *Session) Fence(ctx context.Context) error {
	s.engage()
	defer s.disengage()

	_, err := Do(ctx, s, func(*zk.Conn) (struct{}, error) {
		w := s.conn.Link()
		if w == nil {
			return struct{}{}, zk.ErrConnectionClosed
		}
		r := w.Ask(s.fence())
		if r.By == trust.Quorum {
			return struct{}{}, nil
		}
		err := conn.ErrorOf(r.Code)
		if conn.OutcomeOf(err) == conn.Definite && r.Code != zkwire.CodeAuthRequired {
			err = fmt.Errorf("%w: %w", conn.ErrUnproven, err)
		}
		return struct{}{}, err
	})
	return err
}

// Confirm makes a quorum of the ensemble confirm s, unless that was done lately, and reports
// whether it had to ask. What was read before it asked may be out of date. Before something is
// granted that a contender has waited for, s has to be confirmed.
func (s *Session) Confirm(ctx context.Context) (asked bool, err error) {
	if s.confirmed() {
		return false, nil
	}
	return true, s.Fence(ctx)
}
