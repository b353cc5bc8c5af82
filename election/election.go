package election

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
)

// An Election is one leadership that candidates campaign for. It is safe for concurrent use;
// goroutines that campaign in one Election are candidates as processes are.
type Election struct {
	recipe     *protocol.Recipe
	line       *line.Line
	newBackOff func() backoff.BackOff

	latest atomic.Pointer[Term] // of those won through this value
}

// New returns the election at path, a node of its own that is created as needed. New does no I/O
// and cannot fail: the first call reports a nil client, a bad path or a bad option.
func New(c *protocol.Client, path string, opts ...Option) *Election {
	r := protocol.NewRecipe(c, "election", path)
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
	protocol.Configure(r, e, opts)
	return e
}

// An Option shapes an election; give it to [New].
type Option func(*Election) error

// WithBackOff paces [Election.Run] with what newBackOff returns. After a term of less than a
// second, Run pauses for as long as the back-off says before it campaigns again. After a longer
// term Run calls newBackOff afresh. The default is exponential, jittered, from 20 milliseconds to
// one second. If the back-off ends by itself, Run ends, too.
func WithBackOff(newBackOff func() backoff.BackOff) Option {
	return func(e *Election) error {
		if newBackOff == nil {
			return errors.New("nil back-off")
		}
		e.newBackOff = newBackOff
		return nil
	}
}

// Campaign enters the election and returns the term once it is won. It blocks until then, until ctx
// ends or the client is closed. The value is what others learn of a candidate: where to reach it,
// say. Value and path together may have [protocol.MaxData] bytes. The caller must not change the
// value before Campaign returns.
//
// If ctx ends first, Campaign withdraws and returns an error that wraps ctx's. It does the same if
// it is elected at that very moment. A withdrawal that takes longer goes on in the background.
//
// If Campaign loses its session or its node while it waits, it joins again at the end of the line.
// After the loss of a session it does so in the next one. Other errors wrap [protocol.ErrClosed],
// [protocol.ErrTooLarge], [protocol.ErrSequenceExhausted], [protocol.ErrMixed] or
// [zk.ErrInvalidPath], or are the server's own, such as [zk.ErrNoAuth].
//
// The term does not depend on ctx. It is lost with its session.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (e *Election) Campaign(ctx context.Context, value []byte) (*Term, error) {
	if value == nil {
		value = []byte{} // no owner data, which others would take for a value
	}
	g, err := e.line.Enter(ctx, line.Request{Kind: "lock-", Data: value, Blockers: line.Exclusive})
	if err != nil {
		return nil, err
	}
	t := &Term{g, e}
	e.note(t)
	return t, nil
}

// note makes t the latest term. A goroutine that was slow to come here may have lost its term to
// another one that is here already. A term that is over says nothing about t: the tokens of an
// ensemble that has lost its data begin anew.
func (e *Election) note(t *Term) {
	for {
		latest := e.latest.Load()
		if latest != nil && latest.Token() > t.Token() && latest.Err() == nil || e.latest.CompareAndSwap(latest, t) {
			return
		}
	}
}

// Leading returns the term that is held now, if it was won through this very Election value, by
// Campaign or Run, in any goroutine. It is for a handler that asks whether its process leads: it
// does not block, does no I/O, and computes the answer from the clocks, as [Term.Err] does. A term
// may end right after the call. What must not happen after that belongs under [Term.Check] or
// [Term.Token]. Leading is safe for concurrent use.
func (e *Election) Leading() (t *Term, ok bool) {
	t = e.latest.Load()
	if t == nil || t.Err() != nil {
		return nil, false
	}
	return t, true
}

// steady is the length of a term after which Run campaigns again at once.
const steady = time.Second

// Run campaigns again and again, and calls lead for each term that it wins. The context of lead
// ends with ctx and with the term. After a lost term its cause wraps [protocol.ErrLost]; if lead
// itself resigned, [protocol.ErrReleased]. Once lead has returned, and not before, Run resigns if
// the term still lasts. Then:
//
//   - If ctx has ended, so does Run. It returns nil if the term was given back in order and lead's
//     error says nothing but that ctx, or the term, has ended. Otherwise it returns lead's error,
//     joined with the loss of the term if it was lost.
//   - If lead has returned nil, it steps down, and Run campaigns again, at the end of the line.
//   - If the term ended before lead returned, and lead's error only says so, Run campaigns again,
//     too. Such an error wraps [context.Canceled], [protocol.ErrLost] or [protocol.ErrReleased].
//   - Any other error of lead ends Run, which returns it, joined with the loss of the term if it
//     was lost.
//   - If lead panics, so does Run, after it has resigned.
//
// Run also returns nil if ctx ends while it waits to be elected. It returns the other errors of
// [Election.Campaign], and the server's error if it refused to delete the node. A lost session ends
// a term, and not Run. After a term of less than a second Run pauses, as [WithBackOff] says: a lead
// that returns at once does not make it spin.
//
// Run blocks in all this. Resigning takes until the server has answered, or the session is over.
// Run waits for a lead that does not return when its context ends. Concurrent calls are candidates
// of their own.
func (e *Election) Run(ctx context.Context, value []byte, lead func(ctx context.Context, t *Term) error) error {
	if lead == nil {
		return e.recipe.Wrap(errors.New("nil function"))
	}
	if err := e.recipe.ValidateCall(ctx, value); err != nil {
		return err
	}

	var pause backoff.BackOff
	for {
		t, err := e.Campaign(ctx, value)
		if err != nil && errors.Is(err, ctx.Err()) {
			return nil
		} else if err != nil {
			return err
		}

		began := time.Now()
		if err := e.lead(ctx, t, lead); err != nil || ctx.Err() != nil {
			return err
		}

		// A short term may be followed by another one: the pauses grow until a term lasts.
		if pause == nil || time.Since(began) >= steady {
			pause = e.newBackOff()
		}
		if time.Since(began) >= steady {
			continue
		}

		d := pause.NextBackOff()
		if d == backoff.Stop {
			return e.recipe.Wrap(errors.New("given up: terms are too short"))
		}

		// A nanosecond at least: see Virtual time in package recipestest.
		select {
		case <-time.After(max(d, 1)):
		case <-ctx.Done(): // Campaign says so
		}
	}
}

// lead calls lead for one term. It returns nil if Run is to campaign again, or ctx has ended in
// order.
func (e *Election) lead(ctx context.Context, t *Term, lead func(context.Context, *Term) error) error {
	var failed, over error
	done := protocol.RunHeld(ctx, t.grant, func(held context.Context) error {
		failed = lead(held, t)
		over = t.Err()
		return nil
	})

	// An error that only says that the term has ended is a consequence, and no failure of lead's.
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

	// RunHeld reports the loss of the term, as over does. A refusal by the server is news.
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
