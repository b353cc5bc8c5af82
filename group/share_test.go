package group_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// workers is what the members of a test work at.
type workers struct {
	t     *testing.T
	items []string

	mu   sync.Mutex // protects at
	at   map[string]string
	held map[string]context.Context
}

func newWorkers(t *testing.T, items int) *workers {
	w := &workers{t: t, at: make(map[string]string), held: make(map[string]context.Context)}
	for i := range items {
		w.items = append(w.items, fmt.Sprintf("item-%d", i))
	}
	return w
}

// share shares the items, as a member that takes a moment to end its work.
func (w *workers) share(ctx context.Context, g *group.Group, m *group.Member) <-chan error {
	return suite.Later(func() error {
		return group.Share(ctx, g, m, w.items, func(ctx context.Context, item string) error {
			w.mu.Lock()
			if other := w.held[item]; other != nil && other.Err() == nil && ctx.Err() == nil {
				w.t.Errorf("%s is worked at by %s and %s", item, w.at[item], m.Name())
			}
			w.at[item], w.held[item] = m.Name(), ctx
			w.mu.Unlock()

			<-ctx.Done()
			time.Sleep(10 * time.Millisecond) // work that takes a while to end
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.held[item] == ctx {
				delete(w.at, item)
				delete(w.held, item)
			}
			return ctx.Err()
		})
	})
}

// again waits until all items are worked at by the members that did so before.
func (w *workers) again(before map[string]string) {
	suite.Soon(w.t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return maps.Equal(before, w.at)
	}, "the items are where they were")
}

// owners waits until all items are worked at by these members, and returns by whom.
func (w *workers) owners(members int) map[string]string {
	var all map[string]string
	suite.Soon(w.t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		all = make(map[string]string)
		distinct := make(map[string]bool)
		for item, name := range w.at {
			all[item], distinct[name] = name, true
		}
		return len(all) == len(w.items) && len(distinct) == members
	}, "all items are worked at")
	return all
}

func TestItemsAreSharedAndStayWhereTheyAre(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, w := srv.Root(t)+"/g", newWorkers(t, 30)
		var all []*group.Member
		var ended []<-chan error
		for i := range 3 {
			g := group.New(srv.Client(t), path)
			all = append(all, join(t, g, fmt.Sprintf("m%d", i), ""))
		}
		for _, m := range all {
			ended = append(ended, w.share(t.Context(), group.New(srv.Client(t), path), m))
		}
		before := w.owners(3)
		leave(t, all[0])
		require.ErrorIs(t, suite.Wait(t, ended[0]), protocol.ErrReleased)
		for item, owner := range w.owners(2) {
			if before[item] != "m0" {
				require.Equal(t, before[item], owner, item)
			}
		}

		g := group.New(srv.Client(t), path)
		all[0] = join(t, g, "m0", "")
		ended[0] = w.share(t.Context(), g, all[0])
		w.again(before)
		for i, m := range all {
			leave(t, m)
			require.ErrorIs(t, suite.Wait(t, ended[i]), protocol.ErrReleased)
		}
	})
}

// A member that is cut off loses its items before others work at them, and has them again later.
func TestItemsOfAMemberThatIsCutOffGoToOthers(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, w := srv.Root(t)+"/g", newWorkers(t, 10)
		link := srv.Link(t)
		cut, other := group.New(link.Client(t), path), group.New(srv.Client(t), path)
		first, second := join(t, cut, "first", ""), join(t, other, "second", "")
		ctx, cancel := context.WithCancel(t.Context())
		ends := []<-chan error{w.share(ctx, cut, first), w.share(ctx, other, second)}
		before := w.owners(2)
		for _, f := range []func(*recipestest.Link){
			(*recipestest.Link).Cut, (*recipestest.Link).Stall, (*recipestest.Link).StallReplies,
		} {
			f(link)
			w.owners(1)
			link.Heal()
			w.again(before)
		}
		cancel()
		for _, end := range ends {
			require.ErrorIs(t, <-end, context.Canceled)
		}
		synctest.Wait()
		require.Empty(t, w.at)
		leave(t, first, second)
	})
}

func TestShareEndsWithTheErrorOfItsWork(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		g := group.New(c, srv.Root(t)+"/g")
		m := join(t, g, "a", "")
		broken := errors.New("broken")
		began := make(chan struct{})
		err := group.Share(t.Context(), g, m, []string{"bad", "done", "good"}, func(ctx context.Context, item string) error {
			switch item {
			case "done":
				close(began) // once
				return nil
			case "bad":
				<-began
				return broken
			}
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(t, err, broken)
		require.ErrorContains(t, err, `item "bad"`)
		require.ErrorIs(t, group.Share(t.Context(), g, m, []string{"a/b"}, idle), zk.ErrInvalidPath)
		leave(t, m)
		require.ErrorIs(t, group.Share(t.Context(), g, m, nil, idle), protocol.ErrReleased)
	})
}

// A member that joins gets its items once the work for them has ended elsewhere.
func TestItemIsHandedOverOnceItsWorkHasEnded(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, items := srv.Root(t)+"/g", newWorkers(t, 10).items
		end := make(chan struct{})
		var begun [2]atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		share := func(i int) (*group.Member, <-chan error) {
			g := group.New(srv.Client(t), path)
			m := join(t, g, fmt.Sprintf("m%d", i), "")
			return m, suite.Later(func() error {
				return group.Share(ctx, g, m, items, func(ctx context.Context, item string) error {
					begun[i].Add(1)
					<-ctx.Done()
					<-end
					return nil
				})
			})
		}
		first, firstEnd := share(0)
		synctest.Wait()
		require.EqualValues(t, len(items), begun[0].Load())
		second, secondEnd := share(1)
		time.Sleep(time.Second)
		require.Zero(t, begun[1].Load(), "the work has not ended")
		close(end)
		time.Sleep(time.Second)
		require.NotZero(t, begun[1].Load())
		require.Less(t, int(begun[1].Load()), len(items))
		cancel()
		require.ErrorIs(t, <-firstEnd, context.Canceled)
		require.ErrorIs(t, <-secondEnd, context.Canceled)
		leave(t, first, second)
	})
}

func TestItemWhoseLockIsBrokenIsWorkedAtAgain(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/g"
		g := group.New(c, path)
		m := join(t, g, "a", "")
		begun := make(chan struct{})
		ended := suite.Later(func() error {
			return group.Share(t.Context(), g, m, []string{"x"}, func(ctx context.Context, item string) error {
				begun <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})
		})
		for range 3 {
			suite.Wait(t, begun)
			locks := suite.Children(t, c, path+"-items/x")
			require.Len(t, locks, 1)
			data, _ := suite.Get(t, c, path+"-items/x/"+locks[0])
			require.Equal(t, "a", string(data))
			require.NoError(t, suite.Session(t, c).Delete(t.Context(), path+"-items/x/"+locks[0], -1))
		}
		suite.Wait(t, begun)
		leave(t, m)
		require.ErrorIs(t, suite.Wait(t, ended), protocol.ErrReleased)
	})
}

func idle(ctx context.Context, _ string) error { <-ctx.Done(); return nil }

// The error is ctx's, whatever its cause.
func TestShareEndsWithTheErrorOfItsContext(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		g := group.New(srv.Client(t), srv.Root(t)+"/g")
		m := join(t, g, "a", "")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errors.New("stopped")) })
		err := group.Share(ctx, g, m, []string{"x"}, idle)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "stopped")
		leave(t, m)
	})
}

// A member of another group would never have an item. The path alone does not say which group it
// is, as clients have a chroot.
func TestShareRefusesAMemberOfAnotherGroup(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, root := srv.Client(t), srv.Root(t)
		chrooted, err := protocol.Connect(t.Context(), srv.ConnectString()+root, protocol.WithDialer(srv.Dial))
		require.NoError(t, err)
		defer suite.Close(t, chrooted)
		m := join(t, group.New(c, root+"/g"), "a", "")

		for _, other := range []*group.Group{group.New(c, root+"/other"), group.New(chrooted, root+"/g")} {
			err := group.Share(suite.Within(t, time.Hour), other, m, []string{"x"}, idle)
			require.ErrorIs(t, err, zk.ErrBadArguments)
		}

		ctx, cancel := context.WithCancel(t.Context())
		err = group.Share(ctx, group.New(chrooted, "/g"), m, []string{"x"}, func(context.Context, string) error {
			cancel()
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		leave(t, m)
	})
}

func TestShareEndsWhenTheMembersClientIsClosed(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/g"
		m := join(t, group.New(c, path), "a", "")
		ended := suite.Later(func() error {
			return group.Share(t.Context(), group.New(srv.Client(t), path), m, []string{"x"}, idle)
		})
		time.Sleep(time.Second)
		suite.Close(t, c)
		require.ErrorIs(t, suite.Wait(t, ended), protocol.ErrClosed)
	})
}
