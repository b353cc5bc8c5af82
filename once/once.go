package once

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A Once runs a job once for each key. It is safe for concurrent use.
type Once struct {
	recipe *recipe.Recipe
	line   *line.Line
	keep   int

	retention time.Duration // zero: no limit
	swept     atomic.Int64  // the server's time of the last search for old keys, in milliseconds
	inLine    atomic.Int64  // how many keys with a record were in line when a call forgot keys last
}

// An Option shapes a Once; give it to [New].
type Option func(*Once) error

// WithKeep says how many done keys are remembered (from 1 to 100,000). The default is 1,000.
//
// The call that makes a key done also forgets the keys that have been done for longest. It waits
// until there are a tenth more than n, so that few calls must do it. A forgotten key can run again.
// Keys that have failed don't count. But they are forgotten first, and don't wait any more before
// they run again. If processes give different numbers at one path, the smallest number counts.
func WithKeep(n int) Option {
	return func(o *Once) error {
		if n < 1 || n > maxKeep {
			return fmt.Errorf("WithKeep needs a number from 1 to %d, got %d", maxKeep, n)
		}
		o.keep = n
		return nil
	}
}

const (
	maxKey  = 255
	maxKeep = 100_000
)

// New returns the Once at path, which needs a node of its own. (The node is created when it is
// needed.) New does no I/O and cannot fail: the first call reports a nil client, a bad path or a
// bad option.
func New(c *protocol.Client, path string, opts ...Option) *Once {
	r := recipe.New(c, "once", path)
	o := &Once{recipe: r, line: line.New(r, line.Kind{Name: kind}), keep: 1000}
	recipe.Configure(r, o, opts)
	return o
}

// A Run is the right to run a key. It is held until fn has returned. It can be lost before: with
// its session, or when another client deletes its node. It is safe for concurrent use.
type Run struct {
	grant *recipe.Grant
	key   string
}

// Key returns the key.
func (r *Run) Key() string { return r.key }

// Done returns a channel that is closed when the right to run is lost or fn has returned. [Run.Err]
// may report a loss before Done is closed.
func (r *Run) Done() <-chan struct{} { return r.grant.Done() }

// Err returns nil while the right to run is held. After a loss its error wraps [protocol.ErrLost]
// and the cause. After fn has returned it wraps [protocol.ErrReleased]. Err computes the answer
// from the clocks at each call, without I/O.
func (r *Run) Err() error { return r.grant.Err() }

// Context returns a copy of parent that is also cancelled when the right to run ends, with
// [Run.Err] as its cause. Call the cancel function when the work is done.
func (r *Run) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return r.grant.Context(parent)
}

// Token returns the fencing token of this run. It is greater than the tokens of all earlier runs of
// the key. So it keeps out a former run that is late, but it does not show that an earlier run has
// done the work already: store the key for that, together with the work, in one transaction.
func (r *Run) Token() int64 { return r.grant.Token() }

// Check returns an operation to put first into a [zk.Conn] Multi. The whole Multi then fails with
// [zk.ErrNoNode] once the right to run is lost. The path in it is absolute.
//
// [zk.Conn]: https://pkg.go.dev/github.com/go-zookeeper/zk#Conn
// [zk.ErrNoNode]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoNode
func (r *Run) Check() *zk.CheckVersionRequest { return r.grant.Check() }

// Multi does all of the operations if the right to run is still held, or none: it is the fenced
// write to ZooKeeper. It behaves as [lock.Lease.Multi] does and returns the same errors. It does
// not make the key done. If the process dies after Multi, another process runs the key again, so
// let Multi create a node that is named after the key.
//
// [lock.Lease.Multi]: https://pkg.go.dev/github.com/zkrecipes/zkrecipes/lock#Lease.Multi
func (r *Run) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return r.grant.Multi(ctx, ops...)
}

// Node returns the name of the run's node below the path.
func (r *Run) Node() string { return r.grant.Node() }

// Do calls fn unless the key is done (in any process at this path). ran reports whether it has
// called fn.
//
// Among all calls with the same key, one at a time runs fn. The others wait. When fn returns nil,
// Do records that and returns true and nil. The others and all later calls then return false and
// nil. If fn returns an error or panics, or its process dies, the next call runs its own fn. Do
// returns fn's error (joined with the loss of the right to run, if it was lost).
//
// After a failed run the next run waits: for a second after the first failure, then twice as long
// each time, for a minute at most. So a job that fails everywhere doesn't run through the fleet.
//
// The context of fn is cancelled when ctx ends or when the right to run is lost. In the latter case
// its cause wraps [protocol.ErrLost], and the next call can run before fn returns.
//
// Do blocks until the key is done or fn has returned, and until that is recorded. If ctx ends while
// Do waits, it returns ctx's error and leaves no contender. If ctx ends while fn runs, Do waits for
// fn. If fn then returns nil, Do still has a second to record that.
//
// The record's node is created before fn runs, so that a full quota makes Do return
// [protocol.ErrQuotaExceeded] without running fn. If the run cannot be recorded as done (for
// example because the right to run was lost), ran is true and the error says so. Then the key runs
// again. If the session was lost together with the answer, the error wraps [protocol.ErrUncertain]:
// the run may be recorded all the same. The next call with the key finds out.
//
// A key has 1 to 255 bytes of any kind. Otherwise Do returns an error without I/O. fn must not call
// Do with the same key, because it would wait for itself. Do also returns the errors of
// [lock.Mutex.Lock].
//
// [lock.Mutex.Lock]: https://pkg.go.dev/github.com/zkrecipes/zkrecipes/lock#Mutex.Lock
func (o *Once) Do(ctx context.Context, key string, fn func(ctx context.Context, r *Run) error) (ran bool, err error) {
	if fn == nil {
		return false, o.recipe.Wrap(errors.New("nil function"))
	}
	name, err := o.name(key)
	if err != nil {
		return false, err
	}

	// A key that is done costs one read, and no place in line.
	look := func(s *recipe.Session) (bool, error) { return o.isDone(ctx, s, name) }
	if done, err := recipe.AcrossSessions(ctx, o.recipe, look); done || err != nil {
		return false, o.recipe.Wrap(err)
	}

	// Join the line, and look again: a predecessor may have made the key done meanwhile.
	var now start
	g, err := o.recipe.Acquire(ctx, nil, func(s *recipe.Session) (*recipe.Grant, error) {
		g, err := o.line.Join(ctx, s, &line.Request{Kind: name + kind, Blockers: sameKey})
		if err != nil {
			return nil, err
		}
		if now, err = o.begin(ctx, g, name); err != nil {
			g.Release(ctx)
		}
		return g, err
	})
	if err != nil {
		return false, err
	}

	// Run, and make the key done while the grant is still held.
	err = recipe.RunHeld(ctx, g, func(held context.Context) (err error) {
		if now.done {
			return nil
		}

		defer func() {
			if !now.done && ctx.Err() == nil && g.Err() == nil { // also if fn panics
				o.fail(ctx, g, name, now.failures)
			}
		}()

		ran = true
		if err := fn(held, &Run{g, key}); err != nil {
			return err
		}

		// From here on, because fn can go on for long after the end of ctx.
		recording, stop := recipe.Linger(ctx, time.Second)
		defer stop()
		if err := o.record(recording, g, name); err != nil {
			return o.recipe.Wrap(fmt.Errorf("key %q has run, and that is not recorded: %w", key, err))
		}
		now.done = true
		return nil
	})

	if !now.done {
		return ran, err
	}

	o.forget(ctx, g.Session(), now.dir)
	return ran, nil // whatever has become of the session since
}

// name returns the name of the nodes for a key, or refuses the call.
func (o *Once) name(key string) (string, error) {
	if key == "" || len(key) > maxKey {
		return "", o.recipe.Wrap(fmt.Errorf("a key needs from 1 to %d bytes, got %d", maxKey, len(key)))
	}
	return layout.Escape(key), nil
}

// sameKey blocks a contender while there is one of the same key ahead.
func sameKey(names []line.Name, self int) []line.Name {
	for i, n := range slices.Backward(names[:self]) {
		if callOf(n) == callOf(names[self]) {
			return names[i : i+1]
		}
	}
	return nil
}

// callOf returns the escaped key of a contender.
func callOf(n line.Name) string {
	_, rest, _ := recipe.ParseOwner(n.Node)
	return rest[:max(0, strings.LastIndex(rest, kind))]
}
