package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// An Election is one leadership that candidates campaign for. It is safe for concurrent use;
// goroutines that campaign in one Election are candidates as processes are.
type Election struct {
	path       string
	line       *protocol.Line
	newBackOff func() backoff.BackOff
	err        error // a bad option
}

// kind begins the names of our nodes, and of those of Apache Curator and go-zookeeper; kazooKind of
// kazoo's.
const (
	kind      = "lock-"
	kazooKind = "__lock__"
)

// New returns the election at path, a node of its own that is created as needed. New does no I/O
// and cannot fail: the first call reports a nil client, a bad path or a bad option.
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

// WithBackOff paces [Election.Run] with what newBackOff returns. After a term of less than a
// second, Run pauses for as long as the back-off says before it campaigns again. After a longer
// term Run calls newBackOff afresh. The default is exponential, jittered, from 20 milliseconds to
// one second. If the back-off ends by itself, Run ends, too.
func WithBackOff(newBackOff func() backoff.BackOff) Option {
	return func(e *Election) {
		if newBackOff == nil {
			e.err = errors.New("nil back-off")
		}
		e.newBackOff = newBackOff
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
// [protocol.ErrTooLarge], [protocol.ErrSequenceExhausted] or [zk.ErrInvalidPath], or are the
// server's own, such as [zk.ErrNoAuth].
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

// steady is the length of a term after which Run campaigns again at once.
const steady = time.Second

// Run campaigns again and again, and calls lead for each term that it wins. The context of lead
// ends with ctx and with the term. After a lost term its cause wraps [protocol.ErrLost]; if lead
// itself resigned, [protocol.ErrReleased]. Once lead has returned, and not before, Run resigns if
// the term still lasts. Then:
//
//   - If ctx has ended, Run returns an error that wraps ctx's, joined with lead's if that says
//     anything else.
//   - If lead has returned nil, it steps down, and Run campaigns again, at the end of the line.
//   - If the term ended before lead returned, and lead's error only says so, Run campaigns again,
//     too. Such an error wraps [context.Canceled], [protocol.ErrLost] or [protocol.ErrReleased].
//   - Any other error of lead ends Run, which returns it, joined with the loss of the term if it
//     was lost.
//   - If lead panics, so does Run, after it has resigned.
//
// Run also returns the errors of [Election.Campaign], and the server's error if it refused to
// delete the node. It never returns nil. A lost session ends a term, and not Run. After a term of
// less than a second Run pauses, as [WithBackOff] says: a lead that returns at once does not make
// it spin.
//
// Run blocks in all this. Resigning takes until the server has answered, or the session is over.
// Run waits for a lead that does not return when its context ends. Concurrent calls are candidates
// of their own.
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

		// A short term may be followed by another one: the pauses grow until a term lasts.
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

// lead calls lead for one term, and returns nil if Run is to campaign again.
func (e *Election) lead(ctx context.Context, t *Term, lead func(context.Context, *Term) error) error {
	var failed, over error
	done := protocol.Scope(ctx, t.grant, func(held context.Context) error {
		failed = lead(held, t)
		over = t.Err()
		return nil
	})

	// An error that only says that the term has ended is a consequence, and no failure of lead's.
	consequence := failed == nil
	for _, why := range []error{context.Canceled, protocol.ErrLost, protocol.ErrReleased} {
		consequence = consequence || over != nil && errors.Is(failed, why)
	}

	// Scope reports how the term ended, which over says already. A refusal by the server is news.
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

// ended returns ctx's error, with its cause in the text if that differs.
func ended(ctx context.Context) error {
	if err, cause := ctx.Err(), context.Cause(ctx); !errors.Is(cause, err) {
		return fmt.Errorf("%w: %v", err, cause)
	}
	return ctx.Err()
}

// A Term is a leadership that lasts until it is given back with [Term.Resign] or lost. It is lost
// with its session, and when another client deletes its node. It is safe for concurrent use.
type Term struct {
	grant    *protocol.Grant
	election *Election
}

// Done returns a channel that is closed when the term is lost or given back. [Term.Err] reports
// which of the two, and may report a loss before Done is closed. Like all methods, it is safe for
// concurrent use.
func (t *Term) Done() <-chan struct{} { return t.grant.Done() }

// Err returns nil while the term is held. After a loss its error wraps [protocol.ErrLost] and the
// cause. After [Term.Resign] its error wraps [protocol.ErrReleased]. Err computes the answer from
// the clocks at each call, without I/O: in a process that was paused it reports the loss at once.
func (t *Term) Err() error { return t.grant.Err() }

// Context returns a copy of parent that is also cancelled when the term is lost or given back, with
// [Term.Err] as its cause. Its own Err is computed from the clocks at each call. A context derived
// from it is cancelled when the loss is noticed. Call the cancel function when the work is done.
func (t *Term) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return t.grant.Context(parent)
}

// Token returns the fencing token, a number greater than that of every earlier leader. That holds
// across sessions, deletions of the path and restarts of the ensemble, unless the ensemble loses
// its data.
//
// A resource that refuses tokens smaller than the largest it has seen is safe from a holder that
// was paused between check and write. The token is the czxid of the node.
func (t *Term) Token() int64 { return t.grant.Token() }

// Check returns an operation to put first into a [zk.Conn] Multi. The whole Multi then fails with
// [zk.ErrNoNode] once the term's node is gone. The path in it is absolute.
func (t *Term) Check() *zk.CheckVersionRequest { return t.grant.Check() }

// Node returns the name of the term's node below the path.
func (t *Term) Node() string { return t.grant.Node() }

// Resign gives the leadership back. It blocks until the candidate's node is deleted, ctx ends or
// the session is over. The term ends at once, and the node is deleted in any case. If ctx ends
// first, Resign returns ctx's error and the client completes the deletion in the background.
//
// Resign returns an error that wraps [protocol.ErrLost] if the term was lost before, or if the
// session ended before the deletion was confirmed. Either way the term is no longer held. Resign
// may be called again, and concurrently: each call waits for the same deletion.
func (t *Term) Resign(ctx context.Context) error { return protocol.Release(ctx, t.grant) }

// ResignTo resigns in favour of a candidate that need not be next in line, given its name in
// [Election.Candidates]. The vacancy is as short as after [Term.Resign]: it lasts until the
// candidate has been notified. At no moment can two candidates believe that they lead.
//
// Candidates that came before the chosen one are passed over. The transaction that ends the term
// deletes their nodes, and they join again at the end of the line by themselves. They could not
// keep their places, because the tokens of later leaders have to be greater. No other candidate is
// affected.
//
// ResignTo blocks until the server has answered three times, ctx ends or the session is over. The
// term lasts during the first two of these requests. If the error wraps one of the following,
// nothing was done and the term goes on, as its Err confirms:
//
//   - [protocol.ErrNotInLine]: there is no such candidate;
//   - [protocol.ErrStranger]: a contender of another library would have to be passed over, and
//     would not find its way to the end of the line;
//   - [protocol.ErrTooLarge]: thousands of candidates would have to be passed over;
//   - ctx's error, if ctx ended early enough.
//
// There is one exception. If the candidate leaves at the last moment, ResignTo also returns
// ErrNotInLine, but the term has ended and the next in line leads. The other errors are those of
// Resign.
func (t *Term) ResignTo(ctx context.Context, node string) error {
	return t.election.line.ReleaseTo(ctx, t.grant, node)
}

// Proclaim changes the leader's value, which [Election.Leader], [Election.Observe] and
// [Election.Candidates] show. It takes effect once: a value that a later Proclaim has replaced does
// not come back. It blocks until the server has answered two requests, or four if an answer was
// lost, or ctx ends. It goes on blocking while the session is suspended. It may be called
// concurrently; of concurrent calls, one takes effect last. The caller must not change the slice
// before Proclaim returns, or ever if ctx ended first.
//
// If the term ended before, the error wraps [protocol.ErrLost] or [protocol.ErrReleased]. It may
// also wrap [protocol.ErrTooLarge], or be the server's own. If it is ctx's error, that of a
// back-off that has ended, or [protocol.ErrUncertain], the value may have been changed or not. A
// lost term's Proclaim changes nothing, however late it arrives: its node is gone and the name is
// never used again.
func (t *Term) Proclaim(ctx context.Context, value []byte) error {
	return t.election.line.SetData(ctx, t.grant, value)
}
