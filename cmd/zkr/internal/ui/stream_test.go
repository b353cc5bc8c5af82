package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// paths are those of the rows that a message sets.
func (m told) paths() (all []string) {
	for _, r := range m.Set {
		all = append(all, r.Path)
	}
	return all
}

// about returns what makes a message one that sets a row, of which is says yes.
func about(path string, is func(row) bool) func(told) bool {
	return func(m told) bool {
		for _, r := range m.Set {
			if r.Path == path && is(r) {
				return true
			}
		}
		return false
	}
}

func TestBrowserIsToldWhatHasChanged(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		root, c := srv.Root(t), newClient(t, srv)
		var leases []*lock.Lease
		for i := range 5 {
			path := fmt.Sprintf("%s/%d", root, i)
			suite.Keep(t, c, path)
			l := suite.Must(t, lock.New(c, path, lock.WithData([]byte("me"))).Lock)
			leases = append(leases, l)
		}
		server := start(t, newClient(t, srv), root, Access{}, nil)
		first := listen(t, server, nil)
		m := first.all()
		require.Len(t, m.Set, 5)
		require.Equal(t, root, m.Reset.Path)
		require.False(t, m.Reset.CanBreak)
		require.Empty(t, m.Reset.Key)

		require.NoError(t, leases[2].Unlock(t.Context()))
		var gone told // in one or two messages: the node may be found gone before the listing is new
		for len(m.Set) != 1 || m.Set[0].Recipe != "empty" {
			m = first.next()
			require.Nil(t, m.Reset)
			require.Subset(t, []string{root + "/2"}, m.paths(), "no other row")
			gone.Events = append(gone.Events, m.Events...)
		}
		require.Len(t, gone.Events, 1)
		require.Equal(t, "ended", gone.Events[0].Kind)
		require.Equal(t, "me", gone.Events[0].From)

		// A browser that comes back is told what it has missed, and one of another zkr all.
		first.stop()
		require.NoError(t, suite.Session(t, c).Delete(t.Context(), root+"/2", -1))
		require.NoError(t, leases[3].Unlock(t.Context()))
		second := listen(t, server, map[string]string{"Last-Event-ID": m.id})
		var missed told
		for len(missed.Removed) == 0 || len(missed.Set) == 0 {
			next := second.next()
			require.Nil(t, next.Reset)
			require.Subset(t, []string{root + "/3"}, next.paths())
			missed.Removed = append(missed.Removed, next.Removed...)
			missed.Set = append(missed.Set, next.Set...)
		}
		require.Len(t, missed.Removed, 1)
		for _, id := range []string{"", "x", "x-1", m.id + "9"} {
			require.NotNil(t, listen(t, server, map[string]string{"Last-Event-ID": id}).next().Reset, id)
		}
	})
}

func TestBrowsersShareOneSurveyThatCostsNothingAtRest(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	root, c := srv.Root(t), newClient(t, srv)
	for i := range 20 {
		suite.Must(t, lock.New(c, fmt.Sprintf("%s/%02d", root, i)).Lock)
	}
	link := srv.Link(t)
	viewer := link.Client(t)
	t.Cleanup(func() { viewer.Close() })
	server := start(t, viewer, root, Access{}, nil)
	for range 5 {
		require.Len(t, listen(t, server, nil).all().Set, 20)
	}

	reads := func() int {
		return link.Count(recipestest.OpGetData) + link.Count(recipestest.OpGetChildren) + link.Count(recipestest.OpExists)
	}
	before := reads()
	require.Equal(t, 1+2*20, before, "each node once")
	syncs := link.Count(recipestest.OpSync)
	suite.Wait(t, link.Answered(recipestest.OpSync, syncs+1)) // many looks later
	require.Equal(t, before, reads())

	last := listen(t, server, nil)
	last.all()
	require.ErrorIs(t, suite.Err(lock.New(c, root+"/19").TryLock(t.Context())), lock.ErrLocked)
	waiting, cancel := context.WithCancel(suite.Lasting(t))
	waiter := suite.Later(func() error { _, err := lock.New(newClient(t, srv), root+"/19").Lock(waiting); return err })
	last.await(about(root+"/19", func(r row) bool { return r.Waiting == 1 }))
	require.LessOrEqual(t, reads(), before+6, "the path that has changed, whose listing may have changed again")
	cancel()
	require.Error(t, suite.Wait(t, waiter))
}

func TestSilentServerIsShown(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	link := srv.Link(t)
	viewer := link.Client(t)
	t.Cleanup(func() { link.Heal(); viewer.Close() })
	browser := listen(t, start(t, viewer, "/", Access{}, nil), nil)
	browser.all()
	link.Stall()
	m := browser.await(func(m told) bool { return m.Status != nil && !m.Status.Live })
	require.Equal(t, "unreachable", m.Events[0].Kind)
	link.Heal()
	browser.await(func(m told) bool { return m.Status != nil && m.Status.Live })
}

func TestNoCharacterThatIsNotPrintableIsSent(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	root, c := srv.Root(t), newClient(t, srv)
	const odd = "<b>\x1b[2J\u202e\u0085\u2028\x00\xff"
	data := suite.Got(json.Marshal(map[string]string{"host": odd, "program": odd, "more": odd}))(t)
	suite.Must(t, lock.New(c, root+"/\u202ename", lock.WithData(data)).Lock)
	suite.Got(group.New(c, root+"/group").Join(t.Context(), "m\u202e", []byte(odd)))(t)

	browser := listen(t, start(t, newClient(t, srv), root, Access{}, nil), nil)
	m := browser.all()
	require.Len(t, m.Set, 2)
	for _, r := range m.Set {
		c := r.Contenders[0]
		for _, text := range []string{r.Path, c.Name, c.Node, c.Data, c.Host, c.Program} {
			require.Negative(t, strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }), "%q", text)
		}
	}
}

func TestTimelineTellsLosses(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	root := srv.Root(t)
	dying := srv.Client(t)
	suite.Must(t, lock.New(dying, root+"/lock", lock.WithData([]byte("one"))).Lock)
	suite.Got(group.New(dying, root+"/group").Join(t.Context(), "host-1", nil))(t)
	browser := listen(t, start(t, newClient(t, srv), root, Access{}, nil), nil)
	browser.all()
	next := suite.Later(func() *lock.Lease {
		l, _ := lock.New(newClient(t, srv), root+"/lock", lock.WithData([]byte("two"))).Lock(suite.Lasting(t))
		return l
	})
	browser.await(about(root+"/lock", func(r row) bool { return r.Waiting == 1 }))

	suite.Close(t, dying)
	require.NotNil(t, suite.Wait(t, next))
	var kinds []string
	for len(kinds) < 2 {
		for _, e := range browser.next().Events {
			kinds = append(kinds, e.Kind)
			if e.Kind == "handed over" {
				require.Equal(t, "one", e.From)
				require.Equal(t, "two", e.To)
			} else {
				require.Equal(t, "host-1", e.From)
			}
		}
	}
	require.ElementsMatch(t, []string{"handed over", "left"}, kinds)
}

func TestQueueShowsItsRates(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	path := srv.Root(t) + "/queue"
	q := queue.New(newClient(t, srv), path)
	suite.Got(q.OfferAll(t.Context(), [][]byte{[]byte("x"), []byte("y")}))(t)
	browser := listen(t, start(t, newClient(t, srv), path, Access{}, nil), nil)
	require.Equal(t, 2, browser.all().Set[0].Queue.Length)
	suite.Got(q.Offer(t.Context(), []byte("z")))(t)
	suite.Got(q.PollN(t.Context(), 2))(t)
	browser.await(about(path, func(r row) bool {
		return r.Queue.Length == 1 && r.Queue.In > 0 && r.Queue.Out > r.Queue.In
	}))
	browser.await(about(path, func(r row) bool { return r.Queue.In == 0 && r.Queue.Out == 0 }))
}

func TestBarrierShowsWhoIsMissing(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/barrier"
		member := func(name string) *doublebarrier.Barrier {
			return doublebarrier.New(newClient(t, srv), path, 2, doublebarrier.WithData([]byte(name)))
		}
		a, b := member("host-a"), member("host-b")
		enter := func(x *doublebarrier.Barrier) <-chan *doublebarrier.Entry {
			return suite.Later(func() *doublebarrier.Entry { e, _ := x.Enter(suite.Lasting(t)); return e })
		}
		browser := listen(t, start(t, newClient(t, srv), path, Access{}, nil), nil)
		browser.all()

		first := enter(a)
		browser.await(about(path, func(r row) bool { return r.Missing != nil && r.Missing.Count == 1 && len(r.Missing.Names) == 0 }))
		second := enter(b)
		inside := [2]*doublebarrier.Entry{suite.Wait(t, first), suite.Wait(t, second)}
		browser.await(about(path, func(r row) bool { return len(r.Contenders) == 2 && r.Contenders[1].State == "inside" }))
		left := suite.Later(func() error { return inside[0].Leave(suite.Lasting(t)) })
		require.NoError(t, inside[1].Leave(suite.Lasting(t)))
		require.NoError(t, suite.Wait(t, left))

		third := enter(a)
		browser.await(about(path, func(r row) bool {
			return r.Missing != nil && r.Missing.Count == 1 && len(r.Missing.Names) == 1 && r.Missing.Names[0] == "host-b"
		}))
		fourth := enter(b)
		suite.Wait(t, third)
		suite.Wait(t, fourth)
	})
}

func TestTreeThatChangesWithoutPauseStaysBelowTheRate(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	root, c := srv.Root(t), newClient(t, srv)
	const rate = 50
	link := srv.Link(t)
	viewer := link.Client(t)
	t.Cleanup(func() { viewer.Close() })
	browser := listen(t, start(t, viewer, root, Access{}, func(c *Config) { c.Rate = rate }), nil)
	browser.all()

	began, before := time.Now(), link.Packets()
	ctx := suite.Within(t, 3*time.Second)
	for i := 0; ctx.Err() == nil; i++ {
		lock.New(c, fmt.Sprintf("%s/%d", root, i%10)).Do(ctx, func(context.Context, *lock.Lease) error { return nil })
	}
	browser.next()
	spent := time.Since(began).Seconds()
	require.LessOrEqual(t, float64(link.Packets()-before), 2*(rate*(spent+1)+100), "requests and answers, and a look")
}
