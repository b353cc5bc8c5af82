package value

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// ErrUnset is returned by [Value.Get] if there is no value.
var ErrUnset = errors.New("not set")

// A Value is the data of one node. It is safe for concurrent use.
type Value struct{ recipe *recipe.Recipe }

// A State is the value at one time.
type State struct {
	Data     []byte
	Version  int32     // how often it was written since it was last unset
	Token    int64     // grows with each write, even across deletions (the mzxid of the node)
	Modified time.Time // by the server's clock
}

// Unset reports whether there is no value. A value can be set and empty.
func (s State) Unset() bool { return s.Token == 0 }

// stateOf returns the state that was read. Without a node it is unset, which is no error.
func stateOf(data []byte, stat *zk.Stat, err error) (State, error) {
	if errors.Is(err, zk.ErrNoNode) {
		return State{}, nil
	} else if stat == nil {
		return State{}, err
	}
	return State{data, stat.Version, stat.Mzxid, time.UnixMilli(stat.Mtime)}, err
}

// An Option shapes a value; give it to [New].
type Option func(*Value) error

// New returns the value at path. Missing nodes above it are created when they are needed. New does
// no I/O and cannot fail: the first call reports a nil client or a bad path.
func New(c *protocol.Client, path string, opts ...Option) *Value {
	v := &Value{recipe: recipe.New(c, "value", path)}
	recipe.Configure(v.recipe, v, opts)
	return v
}

// Get returns the value as of a moment after the call began. It blocks until the server has
// answered twice or ctx ends. If a session is lost, Get goes on in the next session. The error
// wraps [ErrUnset] (there is no value), ctx's error, [protocol.ErrClosed] or [zk.ErrInvalidPath].
// Other errors come from the server (for example [zk.ErrNoAuth]). Get is safe for concurrent use.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (v *Value) Get(ctx context.Context) (State, error) {
	return v.across(ctx, func(s *recipe.Session) (State, error) {
		if err := s.Sync(ctx, v.recipe.Path()); err != nil {
			return State{}, err
		}

		state, err := stateOf(s.Get(ctx, v.recipe.Path()))
		if err == nil && state.Unset() {
			err = ErrUnset
		}
		return state, err
	})
}

// Set replaces the value (whatever it is) and returns the new state. It behaves as [Value.Update]
// does. The caller must not change data afterwards.
func (v *Value) Set(ctx context.Context, data []byte) (State, error) {
	return v.Update(ctx, func(State) ([]byte, error) { return data, nil })
}

// Update calls fn with the value and replaces the value with fn's result. It returns the new state.
// If another client writes in between, Update pauses (see [protocol.WithBackOff]) and calls fn
// again with the new value. So fn can be called several times and must have no effects of its own.
// If there is no value, fn gets a State that is [State.Unset]. If fn fails, nothing changes and
// Update returns fn's error. No client can delete the value while fn runs, so fn must not wait for
// that.
//
// Update blocks until the server has answered three requests. It also ends with ctx and with the
// client. If the connection breaks, Update finds out whether the write was executed. If a session
// is lost before the write, Update goes on in the next session. If ctx or the session ends while
// the outcome of the write is unknown, the error wraps [protocol.ErrUncertain] (the value was
// replaced once or not at all). Other errors wrap ctx's error or one of [protocol.ErrClosed],
// [protocol.ErrTooLarge], [protocol.ErrSessionFull] and [zk.ErrInvalidPath]. All others come from
// the server. Update is safe for concurrent use.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
func (v *Value) Update(ctx context.Context, fn func(old State) (data []byte, err error)) (State, error) {
	if fn == nil {
		return State{}, v.recipe.Wrap(errors.New("nil function"))
	}
	var failed error
	state, err := v.across(ctx, func(s *recipe.Session) (State, error) {
		node := v.recipe.Path()
		receipt := s.Receipt(node)
		defer s.Go(func(ctx context.Context, s *recipe.Session) { s.Delete(ctx, receipt, -1) })

		// No client can delete a node that has a receipt. Without the receipt, the node could be
		// deleted and created again, and have the version that we read here.
		_, err := recipe.Do(ctx, s, func(c *zk.Conn) (string, error) {
			return recipe.Create(c, s.Path(receipt), nil, zk.FlagEphemeral, s.ACL(receipt))
		})

		var old State
		if err == nil || errors.Is(err, zk.ErrNodeExists) { // by an attempt whose reply was lost
			old, err = stateOf(s.Get(ctx, node))
		} else if errors.Is(err, zk.ErrNoNode) {
			_, err = s.EnsurePath(ctx, layout.Parent(node))
		}
		if err != nil {
			return State{}, err
		}

		// After an error, across would call fn again if the session was lost meanwhile.
		data, err := fn(old)
		if failed = cmp.Or(err, v.recipe.Validate(data)); failed != nil {
			return State{}, nil
		}

		// Only the answer to a write has a Stat, so a new node is written in the same transaction.
		ops := []any{&zk.CreateRequest{Path: node}, &zk.SetDataRequest{Path: node, Data: data, Version: old.Version}}
		if !old.Unset() {
			ops = ops[1:]
		}

		answers, err := s.MultiOnce(ctx, receipt, !old.Unset(), ops...)
		if err == nil {
			return stateOf(data, answers[len(ops)-1].Stat, nil)
		}

		if errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNodeExists) {
			err = recipe.Again(err) // another client has written
		}
		return State{}, err
	})
	return state, cmp.Or(err, v.recipe.Wrap(failed))
}

// Delete deletes the value. If there is no value, it does nothing. It blocks until the server has
// answered three times or ctx ends. If another client is writing, Delete waits for that. It returns
// the errors of [Value.Update], or [zk.ErrNotEmpty] if the node has foreign children. Delete is
// safe for concurrent use.
//
// [zk.ErrNotEmpty]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNotEmpty
func (v *Value) Delete(ctx context.Context) error {
	_, err := v.across(ctx, func(s *recipe.Session) (none State, err error) {
		node := v.recipe.Path()
		if err := s.Sync(ctx, node); err != nil {
			return none, err
		}

		children, old, err := s.Children(ctx, node)
		if err == nil {
			// Don't delete a value that another client sets after a lost reply.
			err = s.DeleteOnce(ctx, node, old.Czxid)
		}

		if errors.Is(err, zk.ErrNoNode) {
			err = nil
		} else if errors.Is(err, zk.ErrNotEmpty) && len(slices.DeleteFunc(children, layout.IsReceipt)) == 0 {
			err = recipe.Again(err) // writes are under way
		}
		return none, err
	})
	return err
}

// Watch yields the state as of a moment after the call began and then each new state. (After a
// deletion it yields a State that is [State.Unset].) Watch can skip states that follow each other
// quickly or come while there is no connection. It never skips the last state. A slow loop gets the
// newest state.
//
// Watch blocks between changes and while the session is suspended. If a session is lost, it goes on
// in the next session. It ends with the loop or when ctx is cancelled. If it ends with an error, it
// yields the error last: ctx's error (because its deadline has passed), an error that wraps
// [protocol.ErrClosed] or [zk.ErrInvalidPath], or the server's own error. The sequence can be
// ranged over several times and concurrently, because all loops of a client share one watch at the
// server. The caller must not change the data.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
func (v *Value) Watch(ctx context.Context) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		last, more := int64(-1), true
		_, err := v.across(ctx, func(s *recipe.Session) (none State, err error) {
			// Sync first: the server can be behind the server of the session before.
			for err = s.Sync(ctx, v.recipe.Path()); more && err == nil; {
				w := s.Watch(v.recipe.Path())
				stat, failed := w.Fresh(ctx)
				if errors.Is(failed, zk.ErrNoNode) {
					w = s.WatchChildren(v.recipe.Path()) // that is, for its creation
					if stat, failed = w.Fresh(ctx); stat != nil {
						continue // it was created meanwhile
					}
				}
				if err = failed; err != nil {
					break
				}

				if state, _ := stateOf(w.Data(), stat, nil); state.Token != last {
					last, more = state.Token, yield(state, nil)
				}
				if more {
					err = w.Wait(ctx)
				}
			}
			return none, err
		})

		if more && (!errors.Is(err, context.Canceled) || errors.Is(err, protocol.ErrClosed)) {
			yield(State{}, err)
		}
	}
}

// across calls attempt under one session after the other. It doesn't repeat an attempt whose
// outcome is unknown.
func (v *Value) across(ctx context.Context, attempt func(*recipe.Session) (State, error)) (state State, err error) {
	unknown, err := recipe.AcrossSessions(ctx, v.recipe, func(s *recipe.Session) (unknown, err error) {
		if state, err = attempt(s); errors.Is(err, protocol.ErrUncertain) {
			return err, nil
		}
		return nil, err
	})

	return state, v.recipe.Wrap(cmp.Or(unknown, err))
}
