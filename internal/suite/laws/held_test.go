package laws

import (
	"context"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// eachScene plays a law that is a test of its own for each row. With -short that is every fourth
// row.
func eachScene(t *testing.T, f func(t *testing.T, sc *scene)) {
	player := Virtual()
	for _, row := range player.rows {
		if testing.Short() && rank("some", row.Name)%4 != 0 {
			continue
		}
		sc := &scene{Player: player, row: row}
		t.Run(sc.id(), func(t *testing.T) { f(t, sc) })
	}
}

// eachVerb is eachScene with the usual stage, when the call is ready.
func eachVerb(t *testing.T, f func(s *Stage, row Row, v Verb, base int)) {
	eachScene(t, func(t *testing.T, sc *scene) {
		sc.ready(t, setting{}, func(s *Stage, v Verb, base int) { f(s, sc.row, v, base) })
	})
}

// A transaction with Check succeeds while something is held, and fails once it was given back. It
// is given back even if the ctx of that call has ended before.
func TestCheckFailsOnceItIsGivenBack(t *testing.T) {
	eachVerb(t, func(s *Stage, row Row, v Verb, base int) {
		o := s.do(v, s.ctx)
		if o.held == nil || o.held.Hold == nil || v.Own == "" {
			o.back()
			return
		}
		holder, ok := o.held.Hold.(interface {
			Check() *zk.CheckVersionRequest
		})
		if !ok { // Leases have one each
			require.Contains(s, row.Name, "LockAll")
			o.back()
			return
		}
		change := func() error {
			_, err := must(s.Client.Session(s.ctx)).Conn().Multi(holder.Check())
			return err
		}
		require.NoError(s, change())

		ended, cancel := context.WithCancel(s.ctx)
		cancel()
		if err := o.held.Back(ended); err != nil {
			require.ErrorIs(s, err, context.Canceled)
		}
		require.ErrorIs(s, o.held.Err(), protocol.ErrReleased)
		s.rest()
		if strings.HasSuffix(row.Name, " lent") { // the node is the next lease's
			require.NoError(s, change())
			return
		}
		require.ErrorIs(s, change(), zk.ErrNoNode)
		require.Empty(s, s.Own(v.Own))
	})
}

// A call whose ctx has ended before returns its error with the cause, and changes nothing.
func TestEndedContext(t *testing.T) {
	eachVerb(t, func(s *Stage, row Row, v Verb, base int) {
		ended, cancel := context.WithCancelCause(s.ctx)
		cancel(errEnough)
		o := s.do(v, ended)
		s.rest()
		if !v.Loose {
			require.Equal(s, base, v.Effect())
		}
		require.ErrorIs(s, o.err, context.Canceled)
		if o.err != context.Canceled { // endless verbs have no error of their own
			require.ErrorContains(s, o.err, errEnough.Error())
		}
		require.NotErrorIs(s, o.err, protocol.ErrUncertain)
		o.back()
		s.rest()
	})
}

// A nil ctx is refused before anything is sent, and what is held is held on.
func TestNilContext(t *testing.T) {
	eachVerb(t, func(s *Stage, row Row, v Verb, base int) {
		if row.Name != "lock.Lease.Revoked" { // which takes none
			before := s.Link.Packets()
			h, err := v.Call(nil)
			require.Equal(s, before, s.Link.Packets())
			require.ErrorContains(s, err, "nil context")
			require.Equal(s, base, v.Effect())
			outcome{held: h}.back()
		}
		s.do(v, s.ctx).back()
		s.rest()
	})
}

// A watchedContext knows what waits for its end: contexts that were made from it, and functions of
// context.AfterFunc.
type watchedContext struct {
	context.Context

	mu      sync.Mutex
	waiting map[*int]string // the stacks of those who began to wait
}

// Value hides that there is a context below, or package context would ask that one to wait.
func (w *watchedContext) Value(any) any { return nil }

func (w *watchedContext) AfterFunc(f func()) (stop func() bool) {
	key := new(int)
	w.mu.Lock()
	w.waiting[key] = string(debug.Stack())
	w.mu.Unlock()
	over := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiting, key)
	}
	inner := context.AfterFunc(w.Context, func() { over(); f() })
	return func() bool {
		over()
		return inner()
	}
}

// Programs call verbs with contexts that last as long as they do. So a verb leaves nothing behind
// that waits for the end of its context, whether it has waited or not.
func TestNoVerbLeavesAnythingWithItsContext(t *testing.T) {
	eachVerb(t, func(s *Stage, row Row, v Verb, base int) {
		verb := v.Call
		v.Call = func(ctx context.Context) (*Held, error) {
			w := &watchedContext{Context: ctx, waiting: make(map[*int]string)}
			h, err := verb(w)
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, stack := range w.waiting {
				s.Errorf("this still waits:\n%s", stack)
			}
			return h, err
		}
		o := s.do(v, s.ctx)
		require.NoError(s, calm(o.err))
		o.back()
		s.rest()
	})
}
