package group_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
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
		return m.Share(ctx, w.items, func(ctx context.Context, a *group.Assignment) error {
			item := a.Item()
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

// count returns how many items a member works at, in virtual time.
func (w *workers) count(member string) (n int) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range w.at {
		if name == member {
			n++
		}
	}
	return n
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
			require.NoError(t, <-end)
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
		err := m.Share(t.Context(), []string{"bad", "done", "good"}, func(ctx context.Context, a *group.Assignment) error {
			switch a.Item() {
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
		require.ErrorIs(t, m.Share(t.Context(), []string{"a/b"}, idle), zk.ErrInvalidPath)
		leave(t, m)
		require.ErrorIs(t, m.Share(t.Context(), nil, idle), protocol.ErrReleased)
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
				return m.Share(ctx, items, func(ctx context.Context, a *group.Assignment) error {
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
		require.NoError(t, <-firstEnd)
		require.NoError(t, <-secondEnd)
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
			return m.Share(t.Context(), []string{"x"}, func(ctx context.Context, a *group.Assignment) error {
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

// The member keeps an item when its work is done. An item that comes back waits for the work that
// has not ended yet, though its lock was broken.
func TestItemHasOneCallOfItsWork(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/g"
		m, sets, end := join(t, group.New(c, path), "a", ""), make(chan []string), make(chan struct{})
		var begun atomic.Int32
		ended := suite.Later(func() error {
			return m.ShareAll(t.Context(), sets, func(context.Context, *group.Assignment) error {
				begun.Add(1)
				<-end
				return nil
			})
		})
		sets <- []string{"x"}
		synctest.Wait()
		lock := path + "-items/x/" + suite.Children(t, c, path+"-items/x")[0]
		require.NoError(t, suite.Session(t, c).Delete(t.Context(), lock, -1))
		sets <- nil
		sets <- []string{"x"}
		time.Sleep(time.Second)
		require.EqualValues(t, 1, begun.Load())
		close(end)
		time.Sleep(time.Second)
		require.EqualValues(t, 2, begun.Load())
		require.Len(t, suite.Children(t, c, path+"-items/x"), 1)
		leave(t, m)
		require.ErrorIs(t, suite.Wait(t, ended), protocol.ErrReleased)
	})
}

func idle(ctx context.Context, _ *group.Assignment) error { <-ctx.Done(); return nil }

func TestShareEndsWithItsContext(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		m := join(t, group.New(srv.Client(t), srv.Root(t)+"/g"), "a", "")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		require.NoError(t, m.Share(ctx, []string{"x"}, idle))
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, m.Share(late, []string{"x"}, idle), context.DeadlineExceeded)
		leave(t, m)
	})
}

// What is in both sets stays, and what is not ends or begins. A closed channel changes nothing.
func TestSetOfItemsChanges(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		m := join(t, group.New(srv.Client(t), srv.Root(t)+"/g"), "a", "")
		var mu sync.Mutex
		begun, at := make(map[string]int), make(map[string]*group.Assignment)
		ctx, cancel := context.WithCancel(t.Context())
		sets := make(chan []string)
		ended := suite.Later(func() error {
			return m.ShareAll(ctx, sets, func(ctx context.Context, a *group.Assignment) error {
				mu.Lock()
				begun[a.Item()]++
				at[a.Item()] = a
				mu.Unlock()
				<-ctx.Done()
				require.NoError(t, a.Err(), "it is held until work returns")
				mu.Lock()
				defer mu.Unlock()
				delete(at, a.Item())
				return nil
			})
		})
		now := func() []string {
			synctest.Wait()
			return slices.Sorted(maps.Keys(at))
		}
		require.Empty(t, now())
		sets <- []string{"x", "y"}
		require.Equal(t, []string{"x", "y"}, now())
		x := at["x"]
		require.True(t, strings.HasSuffix(x.Check().Path, "-items/x/"+x.Node()))
		require.Positive(t, x.Token())
		sets <- []string{"y", "z", "z"}
		require.Equal(t, []string{"y", "z"}, now())
		require.ErrorIs(t, x.Err(), protocol.ErrReleased)
		sets <- []string{"x", "y"}
		require.Equal(t, []string{"x", "y"}, now())
		require.Greater(t, at["x"].Token(), x.Token())
		close(sets)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"x", "y"}, now())
		require.Equal(t, map[string]int{"x": 2, "y": 1, "z": 1}, begun)
		cancel()
		require.NoError(t, suite.Wait(t, ended))
		require.Empty(t, now())

		bad := make(chan []string, 1)
		bad <- []string{"a/b"}
		require.ErrorIs(t, m.ShareAll(t.Context(), bad, idle), zk.ErrInvalidPath)
		leave(t, m)
	})
}

// The items of a member that comes back in time stay where they were.
func TestItemsOfAMemberThatIsGoneAreLeftAloneForAWhile(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, w := srv.Root(t)+"/g", newWorkers(t, 10)
		at := func() *group.Group { return group.New(srv.Client(t), path, group.WithGrace(time.Minute)) }
		g := at()
		stays, goes := join(t, g, "stays", ""), join(t, at(), "goes", "")
		ended := []<-chan error{w.share(t.Context(), g, stays), w.share(t.Context(), nil, goes)}
		before := w.owners(2)
		had := w.count("stays")
		leave(t, goes)
		time.Sleep(50 * time.Second)
		require.Equal(t, had, w.count("stays"))
		goes = join(t, at(), "goes", "")
		ended = append(ended, w.share(t.Context(), nil, goes))
		w.again(before)
		leave(t, goes)
		time.Sleep(61 * time.Second)
		require.Equal(t, 10, w.count("stays"))
		leave(t, stays)
		for _, end := range ended {
			require.ErrorIs(t, suite.Wait(t, end), protocol.ErrReleased)
		}
	})
}

// Members go one after the other. The grace of each counts from when it has gone.
func TestEachMemberThatIsGoneHasItsGrace(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, w := srv.Root(t)+"/g", newWorkers(t, 60)
		at := func() *group.Group { return group.New(srv.Client(t), path, group.WithGrace(time.Minute)) }
		g := at()
		stays := join(t, g, "stays", "")
		ended := w.share(t.Context(), g, stays)
		var others []*group.Member
		for i := range 4 {
			g := at()
			others = append(others, join(t, g, fmt.Sprint(i), ""))
			w.share(t.Context(), g, others[i])
		}
		w.owners(5)
		for _, m := range others {
			leave(t, m)
			time.Sleep(5 * time.Second)
		}

		// They went 20, 15, 10 and 5 seconds ago.
		for _, wait := range []time.Duration{41, 5, 5, 5} {
			before := w.count("stays")
			time.Sleep(wait * time.Second)
			require.Greater(t, w.count("stays"), before)
		}
		require.Equal(t, 60, w.count("stays"))
		leave(t, stays)
		require.ErrorIs(t, suite.Wait(t, ended), protocol.ErrReleased)
	})
}

// The locks of all items do not fit into one session. What does not fit is left, and taken by the
// next member that has room.
func TestShareTakesWhatFitsIntoTheSession(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t) + "/" + strings.Repeat("g", 9000)
		var log bytes.Buffer
		warnings := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		c, other := srv.Client(t, protocol.WithLogger(warnings)), srv.Client(t)
		w := newWorkers(t, 200)
		ctx, cancel := context.WithCancel(t.Context())
		atWork := func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.at)
		}

		a, err := group.New(c, root).Join(ctx, "a", nil)
		require.NoError(t, err)
		ended := w.share(ctx, group.New(c, root), a)
		time.Sleep(time.Minute)
		require.Greater(t, atWork(), 150)
		require.Less(t, atWork(), 170)
		s := suite.Session(t, c)
		require.LessOrEqual(t, s.EphemeralBytes(), 1_500_000)
		require.Equal(t, 1, strings.Count(log.String(), "items left alone"))
		require.Contains(t, log.String(), fmt.Sprintf("items=%d", 200-atWork()))

		b, err := group.New(other, root).Join(ctx, "b", nil)
		require.NoError(t, err)
		ended2 := w.share(ctx, group.New(other, root), b)
		time.Sleep(time.Minute)
		require.Equal(t, 200, atWork())

		cancel()
		require.NoError(t, suite.Wait(t, ended))
		require.NoError(t, suite.Wait(t, ended2))
		require.NoError(t, a.Leave(t.Context()))
		require.NoError(t, b.Leave(t.Context()))
		require.Zero(t, s.EphemeralBytes())
	})
}

func TestShareThatIsRefusedSendsNothing(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		g := group.New(link.Client(t), srv.Root(t)+"/g")
		m := join(t, g, "a", "")
		time.Sleep(time.Second)
		var none context.Context
		before := link.Count(recipestest.OpAny)
		require.ErrorContains(t, m.Share(none, nil, idle), "nil context")
		require.ErrorContains(t, (*group.Member)(nil).Share(t.Context(), []string{"x"}, idle), "nil member")
		require.ErrorIs(t, m.Share(t.Context(), []string{"a/b"}, idle), zk.ErrInvalidPath)
		require.ErrorContains(t, m.Share(t.Context(), nil, nil), "nil function")
		require.Equal(t, before, link.Count(recipestest.OpAny))
		leave(t, m)
	})
}

// The group cannot be watched any more, so no work may go on.
func TestShareEndsWhenItsGroupCannotBeListed(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/g", srv.Link(t)
		g := group.New(link.Client(t), path)
		m := join(t, g, "a", "")
		ended := suite.Later(func() error {
			return m.Share(suite.Within(t, time.Hour), []string{"x"}, idle)
		})
		synctest.Wait()
		link.Fail(recipestest.OpGetChildren, path, int32(zkwire.CodeNoAuth), 1)
		began, other := time.Now(), join(t, group.New(srv.Client(t), path), "b", "")
		require.ErrorIs(t, suite.Wait(t, ended), zk.ErrNoAuth)
		require.Less(t, time.Since(began), time.Minute)
		leave(t, m, other)
	})
}
