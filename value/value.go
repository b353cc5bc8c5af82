package value

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"path"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// ErrUnset is returned by [Value.Get] if there is no value.
var ErrUnset = errors.New("not set")

// A Value is the data of one node. It is safe for concurrent use.
type Value struct{ recipe *protocol.Recipe }

// A State is the value at one time.
type State struct {
	Data     []byte
	Version  int32     // how often it was written since it was last unset
	Token    int64     // grows with each write, even across deletions (the mzxid of the node)
	Modified time.Time // by the server's clock
}

// Unset reports whether there is no value. A value may be set and empty.
func (s State) Unset() bool { return s.Token == 0 }

// stateOf returns the state of a node, or a vacant one if there is none.
func stateOf(data []byte, stat *zk.Stat) State {
	if stat == nil {
		return State{}
	}
	return State{data, stat.Version, stat.Mzxid, time.UnixMilli(stat.Mtime)}
}

// An Option shapes a value; give it to [New].
type Option func(*Value) error

// New returns the value at path, whose parents are created as needed. New does no I/O and cannot
// fail: the first call reports a nil client or a bad path.
func New(c *protocol.Client, path string, opts ...Option) *Value {
	v := &Value{recipe: protocol.NewRecipe(c, "value", path)}
	protocol.Configure(v.recipe, v, opts)
	return v
}

// Get returns the value as of a moment after the call began. It blocks until the server has
// answered twice or ctx ends. If a session is lost, it goes on in the next session. Its error wraps
// [ErrUnset] if there is no value, ctx's error, [protocol.ErrClosed] or [zk.ErrInvalidPath], or is
// the server's own, such as [zk.ErrNoAuth]. It is safe for concurrent use.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (v *Value) Get(ctx context.Context) (State, error) {
	return v.across(ctx, func(s *protocol.Session) (State, error) {
		if err := s.Sync(ctx, v.recipe.Path()); err != nil {
			return State{}, err
		}
		state, err := v.read(ctx, s)
		if err == nil && state.Unset() {
			err = ErrUnset
		}
		return state, err
	})
}

// Set replaces the value, whatever it is and returns the new state. It behaves as [Value.Update]
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
// Update blocks until the server has answered three requests, ctx ends or the client is closed. If
// the connection breaks, Update finds out whether the write was executed. If a session is lost
// before the write, it goes on in the next session. If ctx or the session ends while the outcome of
// the write is unknown, the error wraps [protocol.ErrUncertain]: the value may have been replaced,
// once. Other errors wrap ctx's error, [protocol.ErrClosed], [protocol.ErrTooLarge],
// [protocol.ErrSessionFull] or [zk.ErrInvalidPath], or are the server's own. It is safe for
// concurrent use.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
func (v *Value) Update(ctx context.Context, fn func(old State) (data []byte, err error)) (State, error) {
	if fn == nil {
		return State{}, v.recipe.Wrap(errors.New("nil function"))
	}
	return v.across(ctx, func(s *protocol.Session) (State, error) {
		// While the receipt is there, the node cannot be deleted. Otherwise it might be deleted and
		// created again, and have the version that was read here.
		node := v.recipe.Path()
		receipt := s.Receipt(node)
		defer s.Go(func(ctx context.Context, s *protocol.Session) { s.Delete(ctx, receipt, -1) })
		_, err := protocol.Do(ctx, s, func(c *zk.Conn) (string, error) {
			return protocol.Create(c, s.Path(receipt), nil, zk.FlagEphemeral, s.ACL(receipt))
		})
		var old State
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists): // by an attempt whose reply was lost
			old, err = v.read(ctx, s)
		case errors.Is(err, zk.ErrNoNode):
			_, err = s.EnsurePath(ctx, path.Dir(node))
		}
		if err != nil {
			return State{}, err
		}
		data, err := fn(old)
		if err == nil {
			err = v.recipe.Validate(data)
		}
		if err != nil {
			return State{}, err
		}

		ops := []any{&zk.SetDataRequest{Path: node, Data: data, Version: old.Version}}
		if old.Unset() {
			ops = slices.Insert(ops, 0, any(&zk.CreateRequest{Path: node}))
		}
		answers, err := s.MultiOnce(ctx, receipt, !old.Unset(), ops...)
		switch {
		case err == nil:
			return stateOf(data, answers[len(answers)-1].Stat), nil
		case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNodeExists):
			err = protocol.Again(err) // another client has written
		}
		return State{}, err
	})
}

// Delete deletes the value, if there is one. It blocks until the server has answered three times or
// ctx ends, and while another client is writing. It returns the errors of [Value.Update], and
// [zk.ErrNotEmpty] if the node has foreign children. It is safe for concurrent use.
//
// [zk.ErrNotEmpty]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNotEmpty
func (v *Value) Delete(ctx context.Context) error {
	_, err := v.across(ctx, func(s *protocol.Session) (_ State, err error) {
		node := v.recipe.Path()
		if err := s.Sync(ctx, node); err != nil {
			return State{}, err
		}
		old, err := s.Exists(ctx, node)
		if err != nil || old == nil {
			return State{}, err
		}
		_, err = protocol.DoOnce(ctx, s, func(c *zk.Conn) (none struct{}, err error) {
			return none, protocol.Delete(c, s.Path(node), -1)
		}, func(ctx context.Context) (none struct{}, done bool, err error) {
			now, err := s.Exists(ctx, node)
			if err != nil {
				err = errors.Join(protocol.ErrUncertain, err)
			}
			return none, now == nil || now.Czxid != old.Czxid, err
		})
		switch {
		case errors.Is(err, zk.ErrNoNode):
			err = nil
		case errors.Is(err, zk.ErrNotEmpty):
			children, _, failed := s.Children(ctx, node)
			if !slices.ContainsFunc(children, func(child string) bool { return !layout.IsReceipt(child) }) {
				err = protocol.Again(cmp.Or(failed, err)) // writes are under way
			}
		}
		return State{}, err
	})
	return err
}

// Watch yields the state as of a moment after the call began, and then each new state (after a
// deletion, a State that is [State.Unset]). It can skip states that follow each other quickly or
// come while there is no connection, but never the last state. A slow loop gets the newest.
//
// Watch blocks between changes, and while the session is suspended. If a session is lost, it goes
// on in the next session. It ends with the loop, when ctx is cancelled, or with an error, which it
// yields last: ctx's if its deadline has passed, an error that wraps [protocol.ErrClosed] or
// [zk.ErrInvalidPath], or the server's own. The sequence can be ranged over several times and
// concurrently, because all loops of a client share one watch at the server. The caller must not
// change the data.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
func (v *Value) Watch(ctx context.Context) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		last, more := int64(-1), true
		_, err := v.across(ctx, func(s *protocol.Session) (none State, err error) {
			err = s.Sync(ctx, v.recipe.Path()) // its server may be behind that of the session before
			for more && err == nil {
				w := s.Watch(v.recipe.Path())
				same, failed := w.Current(ctx)
				missing := errors.Is(failed, zk.ErrNoNode)
				if missing {
					w = s.WatchChildren(v.recipe.Path()) // that is, for its creation
					same, failed = w.Current(ctx)
				}
				if err = failed; err != nil || !same {
					continue
				}
				stat, _ := w.Ready(ctx)
				if missing && stat != nil { // it was created meanwhile
					continue
				}
				if state := stateOf(w.Data(), stat); state.Token != last {
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

// across calls attempt under one session after the other, unless the outcome is unknown.
func (v *Value) across(ctx context.Context, attempt func(*protocol.Session) (State, error)) (State, error) {
	if err := v.recipe.ValidateCall(ctx, nil); err != nil {
		return State{}, err
	}
	var unsettled error
	state, err := protocol.AcrossSessions(ctx, v.recipe, func(s *protocol.Session) (State, error) {
		state, err := attempt(s)
		if errors.Is(err, protocol.ErrUncertain) {
			unsettled, err = err, nil
		}
		return state, err
	})
	return state, v.recipe.Wrap(cmp.Or(unsettled, err))
}

// read returns the state, which is unset if there is no value.
func (v *Value) read(ctx context.Context, s *protocol.Session) (State, error) {
	data, stat, err := s.Get(ctx, v.recipe.Path())
	if errors.Is(err, zk.ErrNoNode) {
		return State{}, nil
	}
	return stateOf(data, stat), err
}
