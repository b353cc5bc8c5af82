package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/zkrecipes/zkrecipes/internal/pace"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// An Election is one leadership that candidates campaign for. It is safe for concurrent use;
// goroutines that campaign in one Election are candidates as processes are.
type Election struct {
	recipe     *recipe.Recipe
	line       *line.Line
	newBackOff func() backoff.BackOff

	latest atomic.Pointer[Term] // won through this value
}

// New returns the election at path, a node of its own that is created as needed. New does no I/O
// and cannot fail: the first call reports a nil client, a bad path or a bad option.
func New(c *protocol.Client, path string, opts ...Option) *Election {
	r := recipe.New(c, "election", path)
	e := &Election{
		recipe: r,
		line:   line.New(r, line.Locks...),
		newBackOff: func() backoff.BackOff {
			return backoff.NewExponentialBackOff(
				backoff.WithInitialInterval(20*time.Millisecond),
				backoff.WithMaxInterval(time.Second),
				backoff.WithMaxElapsedTime(0),
			)
		},
	}
	recipe.Configure(r, e, opts)
	return e
}

// An Option shapes an election; give it to [New].
type Option func(*Election) error

// WithBackOff paces [Election.Run] with what newBackOff returns. After a term of less than a
// second, Run pauses before it campaigns again. After a longer term Run calls newBackOff again. The
// default grows exponentially from 20 milliseconds to one second (jittered). If the back-off stops,
// Run returns.
func WithBackOff(newBackOff func() backoff.BackOff) Option {
	return func(e *Election) error {
		if newBackOff == nil {
			return errors.New("nil back-off")
		}
		e.newBackOff = newBackOff
		return nil
	}
}

// Campaign enters the election and returns the term once it is won. It blocks until then, or until
// ctx ends or the client is closed. The value is for the other processes (where to reach this
// candidate, say). Value and path together may have [recipe.MaxData] bytes. The caller must not
// change the value before Campaign returns.
//
// If ctx ends first, Campaign withdraws and returns an error that wraps ctx's. It does the same if
// it is elected at that very moment. A withdrawal that takes longer goes on in the background.
//
// If Campaign loses its session or its node while it waits, it joins again at the end of the line
// (after a lost session in the next session). Other errors wrap [protocol.ErrClosed],
// [protocol.ErrTooLarge], [protocol.ErrSequenceExhausted], [protocol.ErrMixed] or
// [zk.ErrInvalidPath]. Or they are the server's own (such as [zk.ErrNoAuth]).
//
// The term does not depend on ctx. It is lost with its session.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (e *Election) Campaign(ctx context.Context, value []byte) (*Term, error) {
	if value == nil {
		value = []byte{} // or the node would get owner data, and others would take that for the value
	}
	g, err := e.line.Enter(ctx, line.Request{Kind: "lock-", Data: value, Blockers: line.Exclusive})
	if err != nil {
		return nil, err
	}
	t := &Term{g, e}
	e.note(t)
	return t, nil
}

// note makes t the latest term. A slow goroutine may have lost its term to another goroutine that
// was here first. Don't compare t with an ended term: tokens begin again in an ensemble that has
// lost its data.
func (e *Election) note(t *Term) {
	for {
		latest := e.latest.Load()
		if latest != nil && latest.Token() > t.Token() && latest.Err() == nil || e.latest.CompareAndSwap(latest, t) {
			return
		}
	}
}

// Leading returns the term that this Election value holds now, whichever goroutine won it by
// Campaign or Run. It is for a handler that asks whether its process leads: it computes the answer
// from the clocks (as [Term.Err] does) without I/O. The term can end right after the call, so fence
// what the handler writes with [Term.Multi] or [Term.Token]. Leading is safe for concurrent use.
func (e *Election) Leading() (t *Term, ok bool) {
	t = e.latest.Load()
	if t == nil || t.Err() != nil {
		return nil, false
	}
	return t, true
}

// steady is the length of a term after which Run campaigns again at once.
const steady = time.Second

// Run campaigns again and again and calls lead for each term that it wins. The context of lead ends
// with ctx and with the term. Its cause wraps [protocol.ErrLost] after a lost term, and
// [protocol.ErrReleased] if lead itself resigned. Once lead has returned, Run resigns if the term
// still lasts. Then:
//
//   - If ctx has ended, Run returns. It returns nil if the term was given back and lead's error
//     says only that ctx or the term has ended. Otherwise it returns lead's error, joined with the
//     loss of the term if it was lost.
//   - If lead returned nil, it steps down: Run campaigns again at the end of the line.
//   - If the term ended before lead returned and lead's error only says so, Run campaigns again.
//     Such an error wraps [context.Canceled], [protocol.ErrLost] or [protocol.ErrReleased].
//   - Run returns any other error of lead, joined with the loss of the term if it was lost.
//   - If lead panics, Run resigns and panics.
//
// Run also returns nil if ctx is cancelled while it waits to be elected. If ctx's deadline has
// passed, Run returns ctx's error instead of nil. It returns the other errors of
// [Election.Campaign], and the server's error if the server refuses to delete the node. A lost
// session ends a term but not Run. After a term of less than a second Run pauses (see
// [WithBackOff]), so that it does not spin if lead returns at once.
//
// Run blocks until then. Resigning takes until the server has answered or the session has ended. If
// lead doesn't return when its context ends, Run waits for it. Concurrent calls are separate
// candidates.
func (e *Election) Run(ctx context.Context, value []byte, lead func(ctx context.Context, t *Term) error) error {
	if lead == nil {
		return e.recipe.Wrap(errors.New("nil function"))
	}
	if err := e.recipe.ValidateCall(ctx, value); err != nil {
		return err
	}

	var pauses pace.Pauses
	for {
		t, err := e.Campaign(ctx, value)
		if err != nil && errors.Is(err, ctx.Err()) {
			return e.recipe.Wrap(recipe.Cancelled(ctx))
		} else if err != nil {
			return err
		}

		began := time.Now()
		if err := e.lead(ctx, t, lead); err != nil || ctx.Err() != nil {
			return cmp.Or(err, e.recipe.Wrap(recipe.Cancelled(ctx)))
		}

		// Short terms can follow each other: the pauses grow until a term lasts.
		if time.Since(began) >= steady {
			pauses.Reset()
			continue
		}

		d, err := pauses.Next(ctx, e.newBackOff)
		if err != nil && ctx.Err() == nil {
			return e.recipe.Wrap(fmt.Errorf("%w: terms are too short", err))
		}

		// A nanosecond at least: see Virtual time in package recipestest.
		select {
		case <-time.After(max(d, 1)):
		case <-ctx.Done(): // Campaign says so
		}
	}
}

// lead calls lead for one term. It returns nil if Run must campaign again, or if ctx was cancelled.
func (e *Election) lead(ctx context.Context, t *Term, lead func(context.Context, *Term) error) error {
	var failed, over error
	done := recipe.RunHeld(ctx, t.grant, func(held context.Context) error {
		failed = lead(held, t)
		over = t.Err()
		return nil
	})

	// If the error only says that the term has ended, lead did not fail.
	consequence := failed == nil
	for _, why := range []error{context.Canceled, protocol.ErrLost, protocol.ErrReleased} {
		consequence = consequence || over != nil && errors.Is(failed, why)
	}

	if ctx.Err() != nil {
		if consequence || errors.Is(failed, ctx.Err()) || errors.Is(failed, context.Cause(ctx)) {
			failed = nil
		}
		return errors.Join(failed, done)
	}

	// RunHeld's error reports the loss of the term, which over has already. A refusal by the server
	// is new.
	if errors.Is(done, protocol.ErrLost) {
		done = nil
	}
	if consequence {
		return done
	}
	if !errors.Is(over, protocol.ErrLost) {
		over = nil
	}
	return errors.Join(failed, over, done)
}
