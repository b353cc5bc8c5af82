package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// An Election is one leadership for which candidates stand. It is safe for concurrent use; goroutines that campaign in
// one Election are candidates like processes are.
type Election struct {
	path       string
	line       *protocol.Line
	newBackOff func() backoff.BackOff
	err        error // a bad option
}

// kind is the spelling of our nodes, and of those of Apache Curator and go-zookeeper; kazooKind is kazoo's.
const (
	kind      = "lock-"
	kazooKind = "__lock__"
)

// New returns the election at path, which is a node of its own that is created as needed. New does no I/O and cannot
// fail: a nil client, a bad path or a bad option is reported by the first call.
func New(c *protocol.Client, path string, opts ...Option) *Election {
	e := &Election{
		path: path,
		line: protocol.NewLine(c, "election", path, kind, kazooKind),
		newBackOff: func() backoff.BackOff {
			return backoff.NewExponentialBackOff(
				backoff.WithInitialInterval(20*time.Millisecond),
				backoff.WithMaxInterval(time.Second),
				backoff.WithMaxElapsedTime(0),
			)
		},
	}
	for _, o := range opts {
		if o != nil {
			o(e)
		}
	}
	return e
}

// An Option shapes an election; give it to [New].
type Option func(*Election)

// WithBackOff paces [Election.Run] with what newBackOff returns, which is called once for each Run: Run pauses so long
// before it stands again after a term of less than a second, and begins anew after a longer one. The default is
// exponential, jittered, from 20 milliseconds to one second. Where the back-off ends by itself, Run does.
func WithBackOff(newBackOff func() backoff.BackOff) Option {
	return func(e *Election) {
		if newBackOff == nil {
			e.err = errors.New("nil back-off")
		}
		e.newBackOff = newBackOff
	}
}

// Campaign stands for election and returns the term once it is won. It blocks until then, until ctx ends or the client
// is closed. The value is what others learn of a candidate: where to reach it, say. With the path it may have
// [protocol.MaxData] bytes, and it must not be changed before Campaign returns.
//
// If ctx ends first, Campaign withdraws (in the background, if that takes longer) and returns an error that wraps
// ctx's; so it does if it is elected at the same moment. If the session is lost while it waits, or somebody deletes its
// node, it goes to the end of the line again, in the next session if need be. Other errors wrap [protocol.ErrClosed],
// [protocol.ErrTooLarge], [protocol.ErrSequenceExhausted], [zk.ErrInvalidPath], or are the server's own, such as
// [zk.ErrNoAuth].
//
// The term does not depend on ctx. It is lost with its session.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (e *Election) Campaign(ctx context.Context, value []byte) (*Term, error) {
	if e.err != nil {
		return nil, e.wrap(e.err)
	}
	g, err := e.line.Enter(ctx, protocol.Bid{Kind: kind, Data: value})
	if err != nil {
		return nil, e.wrap(err)
	}
	return &Term{g, e}, nil
}

func (e *Election) wrap(err error) error { return protocol.Wrap("election", e.path, err) }

// steady is how long a term lasts after which Run stands again at once.
const steady = time.Second

// Run stands for election again and again, and calls lead for each term that is won, with a context that ends with the
// term (its cause then wraps [protocol.ErrLost], or [protocol.ErrReleased] if lead itself resigned) and with ctx. When
// lead has returned, and not before, Run resigns, if that is needed still. Then,
//
//   - if ctx has ended, Run returns an error that wraps ctx's, joined with lead's if that says anything else;
//   - if lead has returned nil, which means that it steps down, Run stands again, at the end of the line;
//   - if the term was lost or given back before lead returned, and lead's error only says so (it wraps
//     [context.Canceled], [protocol.ErrLost] or [protocol.ErrReleased]), likewise;
//   - any other error of lead ends Run, which returns it, joined with the loss of the term if it was lost;
//   - if lead panics, so does Run, after it has resigned.
//
// Run also returns the errors of [Election.Campaign], and what the server said if it refused to delete the node: it
// never returns nil. A lost session ends a term, and not Run. After a term of less than a second Run pauses, as
// [WithBackOff] says: a lead that returns at once does not make it spin.
//
// Run blocks in all this. Resigning takes until the server has answered, or the session is over. A lead that does not
// return when its context ends is waited for. Concurrent calls are candidates of their own.
func (e *Election) Run(ctx context.Context, value []byte, lead func(ctx context.Context, t *Term) error) error {
	if lead == nil {
		return e.wrap(errors.New("nil function"))
	}
	var pause backoff.BackOff
	for {
		t, err := e.Campaign(ctx, value)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := e.lead(ctx, t, lead); err != nil {
			return err
		}
		if pause == nil || time.Since(began) >= steady {
			pause = e.newBackOff()
		}
		if time.Since(began) >= steady {
			continue
		}
		d := pause.NextBackOff()
		if d == backoff.Stop {
			return e.wrap(errors.New("given up: terms are too short"))
		}
		select {
		case <-time.After(d):
		case <-ctx.Done(): // Campaign says so
		}
	}
}

// lead has one term led, and returns nil if Run is to stand again.
func (e *Election) lead(ctx context.Context, t *Term, lead func(context.Context, *Term) error) error {
	var failed, over error
	done := protocol.Scope(ctx, t.Grant, func(held context.Context) error {
		failed = lead(held, t)
		over = t.Err()
		return nil
	})
	consequence := failed == nil
	for _, why := range []error{context.Canceled, protocol.ErrLost, protocol.ErrReleased} {
		consequence = consequence || over != nil && errors.Is(failed, why)
	}
	if errors.Is(done, protocol.ErrLost) || errors.Is(done, protocol.ErrReleased) {
		done = nil
	}
	if ctx.Err() != nil {
		if consequence || errors.Is(failed, ctx.Err()) || errors.Is(failed, context.Cause(ctx)) {
			failed = nil
		}
		return errors.Join(e.wrap(ended(ctx)), failed, done)
	}
	if consequence {
		return done
	}
	if !errors.Is(over, protocol.ErrLost) {
		over = nil
	}
	return errors.Join(failed, over, done)
}

// ended is ctx's error, with its cause in the text if that is another one.
func ended(ctx context.Context) error {
	if err, cause := ctx.Err(), context.Cause(ctx); !errors.Is(cause, err) {
		return fmt.Errorf("%w: %v", err, cause)
	}
	return ctx.Err()
}

// A Term is a leadership that was won, until it is given back with [Term.Resign] or lost. Its Done, Err, Context, Token
// and Check are those of [protocol.Grant]. It is safe for concurrent use.
type Term struct {
	*protocol.Grant
	election *Election
}

// Resign gives the leadership back. It blocks until the candidate's node is deleted, ctx ends or the session is over.
// The term ends at once, and the node is deleted in any case: if ctx ends first, Resign returns ctx's error and the
// client goes on in the background.
//
// Resign returns an error that wraps [protocol.ErrLost] if the term was lost before, or if the session ended before the
// deletion was confirmed; either way it lasts no longer. It may be called again, and concurrently, and then waits for
// the same deletion.
func (t *Term) Resign(ctx context.Context) error { return protocol.Release(ctx, t.Grant) }

// ResignTo resigns in favour of a candidate who is not next in line, by its name in [Election.Candidates]. The
// leadership is vacant for no longer than after [Term.Resign]: until the candidate has been notified.
// Candidates who came before it are passed over: in the transaction that ends the term they lose their
// places, and go to the end of the line by themselves. (They could not stay where they are, because the tokens of
// later leaders have to be greater.) Nobody else is affected, and at no moment can two candidates believe that they lead.
//
// ResignTo blocks until the server has answered three times, during the first two of which the term lasts, ctx ends or
// the session is over. If it returns an error that wraps one of the following, then nothing was done and the term goes
// on, which its Err confirms: [protocol.ErrNotInLine] if there is no such candidate, [protocol.ErrStranger] if a
// contender of another library would have to be passed over, which would not find its way to the end of the line,
// [protocol.ErrTooLarge] if there are thousands to be passed over, or ctx's error, if it came early enough. If the
// candidate leaves at the last moment, ResignTo returns ErrNotInLine too, but the term has ended, and the next in
// line leads. Its other errors are those of Resign.
func (t *Term) ResignTo(ctx context.Context, node string) error {
	return t.election.line.ReleaseTo(ctx, t.Grant, node)
}

// Proclaim changes the leader's value, which [Election.Leader], [Election.Observe] and [Election.Candidates] show. It
// blocks until the server has answered two requests, also while the session is suspended. It returns the error of the
// term, which wraps [protocol.ErrLost] or [protocol.ErrReleased], if that has ended before; [protocol.ErrTooLarge]; what
// the server said; or ctx's error, and then nobody can tell whether the value was changed. A lost term's Proclaim, however late it
// arrives, changes nothing: its node is gone and its name never used again. It may be called concurrently; one
// of several at the same time is the last. The slice must not be changed before Proclaim returns, or, if ctx ends, at all.
func (t *Term) Proclaim(ctx context.Context, value []byte) error {
	return t.election.line.SetData(ctx, t.Grant, value)
}
