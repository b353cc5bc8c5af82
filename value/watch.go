package value

import (
	"context"
	"errors"
	"iter"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

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
		_, err := across(ctx, v, func(s *recipe.Session) (none struct{}, err error) {
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
