package once

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
)

// A Once runs something once per key. It is safe for concurrent use.
type Once struct {
	recipe *protocol.Recipe
	line   *line.Line
	keep   int
}

// An Option shapes a Once; give it to [New].
type Option func(*Once) error

// WithKeep says how many done keys are remembered, between 1 and 100,000. The default is 1,000.
//
// The call that makes a key done forgets the keys that have been done for longest, 50 at most. It
// does so once there are a tenth more than n, or 50 more, so that it rarely has to. A key that is
// forgotten runs again. Processes with different numbers at one path go by the smallest.
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
	maxKey      = 255
	defaultKeep = 1000
	maxKeep     = 100_000
)

// New returns the Once at path, a node of its own that is created as needed. New does no I/O and
// cannot fail: the first call reports a nil client, a bad path or a bad option.
func New(c *protocol.Client, path string, opts ...Option) *Once {
	r := protocol.NewRecipe(c, "once", path)
	o := &Once{recipe: r, line: line.New(r, line.Kind{Name: kind}), keep: defaultKeep}
	protocol.Configure(r, o, opts)
	return o
}

// Do calls fn, unless a call of Do with this key has been done: in any process, at this path. ran
// reports whether it has called fn.
//
// Among all calls with one key, one at a time runs fn. The others wait. When fn returns nil, that
// is recorded, and Do returns true and nil. The others, and all later calls, then return false and
// nil. When fn returns an error, panics, or its process dies, the next call runs its own fn. Do
// returns fn's error, joined with the loss of the right to run, if it was lost.
//
// The context of fn is cancelled when ctx ends, or when the right to run is lost. Its cause then
// wraps [protocol.ErrLost], and the next call may run before fn returns. token is the fencing token
// of this run. It is greater than that of every earlier run at this path with this key.
//
// Do blocks until the key is done or fn has returned, and until that is recorded. If ctx ends while
// Do waits, it returns ctx's error and leaves no node. If ctx ends while fn runs, Do waits for fn,
// and records it if it returns nil.
//
// If that cannot be recorded, because the right to run was lost meanwhile for example, ran is true,
// and the error says so. The key runs again then, unless it was made done by hand meanwhile. The
// error wraps [protocol.ErrUncertain] if the run may be recorded all the same, because the session
// was lost together with the answer. The next call with the key finds out.
//
// A key has from 1 to 255 bytes, and may have any. For others Do returns an error and does no I/O.
// fn must not call Do with the same key: it would wait for itself. Other errors are those of
// [lock.Mutex.Lock].
//
// [lock.Mutex.Lock]: https://pkg.go.dev/github.com/zkrecipes/zkrecipes/lock#Mutex.Lock
func (o *Once) Do(ctx context.Context, key string, fn func(ctx context.Context, token int64) error) (ran bool, err error) {
	if fn == nil {
		return false, o.recipe.Wrap(errors.New("nil function"))
	}
	if key == "" || len(key) > maxKey {
		err := fmt.Errorf("a key needs from 1 to %d bytes, got %d", maxKey, len(key))
		return false, o.recipe.Wrap(errors.Join(o.recipe.Validate(nil), err))
	}

	name := escape(key)
	done, err := protocol.AcrossSessions(ctx, o.recipe, func(s *protocol.Session) (bool, error) {
		return o.isDone(ctx, s, name)
	})
	if done || err != nil {
		return false, o.recipe.Wrap(err)
	}

	// While the call was in line, its predecessors may have made the key done. The server that has
	// shown that they are gone has also seen what they have recorded before.
	g, err := o.recipe.Acquire(ctx, nil, func(s *protocol.Session) (*protocol.Grant, error) {
		g, err := o.line.Join(ctx, s, &line.Request{Kind: name + kind, Blockers: sameKey})
		if err != nil {
			return nil, err
		}
		if done, err = o.isDone(ctx, s, name); err != nil {
			g.Release(ctx)
			return nil, err
		}
		return g, nil
	})
	if err != nil {
		return false, err
	}

	remembered := 0
	err = protocol.RunHeld(ctx, g, func(held context.Context) error {
		if done {
			return nil
		}
		ran = true
		if err := fn(held, g.Token()); err != nil {
			return err
		}
		n, err := o.record(context.WithoutCancel(ctx), g, name)
		if err != nil {
			return o.recipe.Wrap(fmt.Errorf("key %q has run, and that is not recorded: %w", key, err))
		}
		done, remembered = true, n
		return nil
	})
	if !done {
		return ran, err
	}

	o.forget(ctx, g.Session(), remembered)
	return ran, nil // whatever has become of the session since
}

// isDone reports whether a key is done, as far as the session's server knows.
func (o *Once) isDone(ctx context.Context, s *protocol.Session, name string) (bool, error) {
	stat, err := s.Exists(ctx, o.donePath(name))
	return err == nil && stat != nil, err
}

// Below the path are
//
//	<owner>-<key>-run-<sequence>   a call in line to run, ephemeral
//	done/<key>                     a key that is done; its data is a run
//	order/<token>-<sequence>       the escaped key, in the order in which keys were done
//
// with keys escaped. All calls are in one line, so that keys come and go without nodes of their own
// above the contenders.
const kind = "-run-"

func (o *Once) donesPath() string           { return o.recipe.Path() + "/done" }
func (o *Once) donePath(name string) string { return o.donesPath() + "/" + name }
func (o *Once) orderPath() string           { return o.recipe.Path() + "/order" }

// escape returns the name of a key in nodes.
func escape(key string) string {
	name := url.PathEscape(key)
	if name == "." || name == ".." { // which no node may be called
		name = "%2E" + name[1:]
	}
	return name
}

// sameKey blocks a contender while there is one of the same key ahead.
func sameKey(names []line.Name, self int) []line.Name {
	for i, n := range slices.Backward(names[:self]) {
		if keyOf(n) == keyOf(names[self]) {
			return names[i : i+1]
		}
	}
	return nil
}

// keyOf returns the escaped key of a contender.
func keyOf(n line.Name) string {
	_, rest, _ := protocol.ParseOwner(n.Node)
	return rest[:max(0, strings.LastIndex(rest, kind))]
}
