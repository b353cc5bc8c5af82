package group_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
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

// workers has the items that the members of a test work at.
type workers struct {
	t     *testing.T
	items []string

	strict bool // no lock is lost, so an item has one call of work at a time

	mu   sync.Mutex // protects at and held
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
func (w *workers) share(ctx context.Context, m *group.Member) <-chan error {
	return suite.Later(func() error {
		return m.Share(ctx, w.items, func(ctx context.Context, a *group.Assignment) error {
			item := a.Item()
			w.mu.Lock()
			if other := w.held[item]; other != nil && (w.strict || other.Err() == nil && ctx.Err() == nil) {
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

// count returns how many items a member (or any member) works at, in virtual time.
func (w *workers) count(member string) (n int) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range w.at {
		if member == "" || name == member {
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
			all = append(all, join(t, group.New(srv.Client(t), path), fmt.Sprintf("m%d", i), ""))
		}
		for _, m := range all {
			ended = append(ended, w.share(t.Context(), m))
		}
		before := w.owners(3)
		leave(t, all[0])
		require.ErrorIs(t, suite.Wait(t, ended[0]), protocol.ErrReleased)
		for item, owner := range w.owners(2) {
			if before[item] != "m0" {
				require.Equal(t, before[item], owner, item)
			}
		}

		all[0] = join(t, group.New(srv.Client(t), path), "m0", "")
		ended[0] = w.share(t.Context(), all[0])
		w.again(before)
		for i, m := range all {
			leave(t, m)
			require.ErrorIs(t, suite.Wait(t, ended[i]), protocol.ErrReleased)
		}
	})
}

// A member that is cut off loses its items before others work at them. Later it gets them again.
func TestItemsOfAMemberThatIsCutOffGoToOthers(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, w, link := srv.Root(t)+"/g", newWorkers(t, 10), srv.Link(t)
		first := join(t, group.New(link.Client(t), path), "first", "")
		second := join(t, group.New(srv.Client(t), path), "second", "")
		ctx, cancel := context.WithCancel(t.Context())
		ends := []<-chan error{w.share(ctx, first), w.share(ctx, second)}
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
			require.NoError(t, suite.Wait(t, end))
		}
		synctest.Wait()
		require.Empty(t, w.at)
		leave(t, first, second)
	})
}

func TestShareEndsWithTheErrorOfItsWork(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		m := join(t, group.New(srv.Client(t), srv.Root(t)+"/g"), "a", "")
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

// The member keeps an item when its work is done. If an item comes back, it waits for work that has
// not returned yet (even though its lock was broken).
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
		data, _ := suite.Get(t, c, lock)
		require.Equal(t, "a", string(data))
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

// Items in both sets stay. Work for the others ends or begins. A closed channel changes nothing.
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

// The items of a member that comes back in time stay where they were. The grace of each member
// counts from when it has gone.
func TestItemsOfAMemberThatIsGoneAreLeftAloneForAWhile(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, w := srv.Root(t)+"/g", newWorkers(t, 60)
		w.strict = true
		var ended []<-chan error
		begin := func(name string) *group.Member {
			m := join(t, group.New(srv.Client(t), path, group.WithGrace(time.Minute)), name, "")
			ended = append(ended, w.share(t.Context(), m))
			return m
		}
		stays, goes, follows := begin("stays"), begin("goes"), begin("follows")
		time.Sleep(time.Second) // items go from the first members to the later ones
		before := w.owners(3)
		had := w.count("stays")
		leave(t, goes)
		time.Sleep(50 * time.Second)
		require.Equal(t, had, w.count("stays"))
		goes = begin("goes")
		w.again(before)

		leave(t, goes)
		time.Sleep(5 * time.Second)
		leave(t, follows)
		time.Sleep(56 * time.Second)
		more := w.count("stays")
		require.Greater(t, more, had)
		require.Less(t, more, 60, "the items of follows are left alone")
		time.Sleep(5 * time.Second)
		require.Equal(t, 60, w.count("stays"))
		leave(t, stays)
		for _, end := range ended {
			require.ErrorIs(t, suite.Wait(t, end), protocol.ErrReleased)
		}
	})
}

// The locks of all items don't fit into one session. The items without room are left for the next
// member that has room.
func TestShareTakesWhatFitsIntoTheSession(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t) + "/" + strings.Repeat("g", 9000)
		var log bytes.Buffer
		warnings := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		c, other := srv.Client(t, protocol.WithLogger(warnings)), srv.Client(t)
		w := newWorkers(t, 200)
		ctx, cancel := context.WithCancel(t.Context())
		a := suite.Got(group.New(c, root).Join(ctx, "a", nil))(t)
		ended := w.share(ctx, a)
		time.Sleep(time.Minute)
		require.Greater(t, w.count(""), 150)
		require.Less(t, w.count(""), 170)
		s := suite.Session(t, c)
		require.LessOrEqual(t, s.EphemeralBytes(), 1_500_000)
		require.Equal(t, 1, strings.Count(log.String(), "items left alone"))
		require.Contains(t, log.String(), fmt.Sprintf("items=%d", 200-w.count("")))

		b := suite.Got(group.New(other, root).Join(ctx, "b", nil))(t)
		ended2 := w.share(ctx, b)
		time.Sleep(time.Minute)
		require.Equal(t, 200, w.count(""))

		cancel()
		require.NoError(t, suite.Wait(t, ended))
		require.NoError(t, suite.Wait(t, ended2))
		require.NoError(t, a.Leave(t.Context()))
		require.NoError(t, b.Leave(t.Context()))
		require.Zero(t, s.EphemeralBytes())
	})
}

// Once the group cannot be watched any more, no work may go on.
func TestShareEndsWhenItsGroupCannotBeListed(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/g", srv.Link(t)
		m := join(t, group.New(link.Client(t), path), "a", "")
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

// The lock is given back, too, and the work is called again after a second.
func TestItemOfWorkThatExitsIsNotLeftAlone(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		m := join(t, group.New(srv.Client(t), srv.Root(t)+"/g"), "a", "")
		ctx, cancel := context.WithCancel(t.Context())
		var calls atomic.Int32
		shared := suite.Later(func() error {
			return m.Share(ctx, []string{"x"}, func(ctx context.Context, _ *group.Assignment) error {
				if calls.Add(1) == 1 {
					runtime.Goexit()
				}
				<-ctx.Done()
				return nil
			})
		})
		time.Sleep(500 * time.Millisecond)
		require.EqualValues(t, 1, calls.Load())
		suite.Soon(t, func() bool { return calls.Load() == 2 }, "called again")
		cancel()
		require.NoError(t, suite.Wait(t, shared))
		leave(t, m)
	})
}
