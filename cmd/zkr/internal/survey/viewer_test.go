package survey_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// view looks once more.
func view(t *testing.T, v *survey.Viewer) *survey.Place {
	t.Helper()
	p := suite.Got(v.Look(suite.Lasting(t), false))(t)
	return p
}

func TestViewerReadsOnlyWhatHasChanged(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		root, c := srv.Root(t), client(t, srv)
		var leases []*lock.Lease
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			suite.Keep(t, c, root+"/"+name)
			lease := suite.Must(t, lock.New(c, root+"/"+name).Lock)
			leases = append(leases, lease)
		}
		suite.Got(group.New(c, root+"/group").Join(t.Context(), "me", []byte("one")))(t)

		v := survey.NewViewer(client(t, srv), root, survey.Limits{})
		require.True(t, v.Changed())
		require.Equal(t, look(t, c, root), view(t, v))

		before := v.Requests()
		require.False(t, v.Changed())
		require.Equal(t, look(t, c, root), view(t, v))
		require.Equal(t, before, v.Requests(), "nothing has changed")

		require.NoError(t, leases[3].Unlock(t.Context()))
		suite.Soon(t, v.Changed, "change")
		suite.Soon(t, func() bool { return len(view(t, v).Below[3].Contenders) == 0 }, "release")

		// The event of the node comes before that of the listing. In between it is a lock that
		// nobody holds.
		suite.Soon(t, func() bool { return assert.ObjectsAreEqual(look(t, c, root), view(t, v)) }, "the same")
		require.False(t, v.Changed())
		require.LessOrEqual(t, v.Requests(), before+3, "the node, and the listing, which may have been read while it changed")
	})
}

func TestViewerFindsWhatAWatchMisses(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		root, c := srv.Root(t), client(t, srv)
		m := suite.Got(group.New(c, root+"/group").Join(t.Context(), "me", []byte("one")))(t)
		link := srv.Link(t)
		viewer := link.Client(t)
		t.Cleanup(func() { viewer.Close() })
		v := survey.NewViewer(viewer, root, survey.Limits{})
		require.Equal(t, "one", string(view(t, v).Below[0].Contenders[0].Data))

		require.NoError(t, m.Set(t.Context(), []byte("two")))
		suite.Soon(t, func() bool { return string(view(t, v).Below[0].Contenders[0].Data) == "two" }, "new data")
		suite.Reconnect(t, link, viewer)
		require.NoError(t, m.Set(t.Context(), []byte("three")))
		suite.Soon(t, func() bool { return string(view(t, v).Below[0].Contenders[0].Data) == "three" }, "after a reconnect")

		before := suite.Session(t, viewer)
		srv.ExpireSession(before.ID())
		suite.Wait(t, before.Done())
		require.NoError(t, m.Set(t.Context(), []byte("four")))
		require.Equal(t, "four", string(view(t, v).Below[0].Contenders[0].Data))
	})
}

func TestViewerTellsReleasesFromLosses(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/lock", client(t, srv)
		suite.Keep(t, c, path)
		v := survey.NewViewer(client(t, srv), path, survey.Limits{})
		for _, end := range []survey.End{survey.Released, survey.Lost} {
			first := suite.Must(t, lock.New(c, path).Lock)
			second := suite.Later(func() *lock.Lease { l, _ := lock.New(client(t, srv), path).Lock(t.Context()); return l })
			suite.Soon(t, func() bool { return len(view(t, v).Contenders) == 2 }, "waiter")

			// Long enough for the first one's end to be judged, if it could be.
			began := time.Now()
			suite.Soon(t, func() bool { return v.Confirm(t.Context()) == nil && time.Since(began) > 1200*time.Millisecond }, "confirmed")
			require.NoError(t, first.Unlock(t.Context()))
			lease := suite.Wait(t, second)
			require.NotNil(t, lease)
			suite.Soon(t, func() bool {
				left := view(t, v).Contenders
				require.Empty(t, v.Ended(path+"/"+first.Node()), "it was alone when it came, and announces nothing")
				return len(left) == 1 && left[0].State == survey.Holds // not at once, if it was gone before its listing was new
			}, "holder")

			// A loss is one only if the announcement could not have been missed.
			suite.Soon(t, func() bool { return v.Confirm(t.Context()) == nil && v.Knows(path+"/"+lease.Node()) }, "marker")
			if end == survey.Released {
				require.NoError(t, lease.Unlock(t.Context()))
			} else {
				require.NoError(t, lock.New(c, path).Break(t.Context(), lease.Node()))
			}
			suite.Soon(t, func() bool { return len(view(t, v).Contenders) == 0 }, "gone")
			require.Equal(t, end, v.Ended(path+"/"+lease.Node()))
		}
	})
}

// A listing is not read again at once. A holder that is gone meanwhile is shown no more, and how it
// has ended is told by the same look.
func TestViewerDoesNotWaitForAListingToTellAnEnd(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/lock", srv.Client(t)
		suite.Keep(t, c, path)
		m := lock.New(c, path)
		first := suite.Must(t, m.Lock)
		join := func() <-chan *lock.Lease {
			joined := suite.Later(func() *lock.Lease { l, _ := lock.New(c, path).Lock(t.Context()); return l })
			synctest.Wait()
			return joined
		}
		second := join()
		v := survey.NewViewer(client(t, srv), path, survey.Limits{})
		require.Len(t, view(t, v).Contenders, 2)
		require.NoError(t, first.Unlock(t.Context()))
		holder := suite.Wait(t, second)
		time.Sleep(time.Second)
		require.Len(t, view(t, v).Contenders, 1)
		time.Sleep(2 * time.Second)
		require.NoError(t, v.Confirm(t.Context())) // its end could not be missed

		third := join()
		time.Sleep(time.Second)
		require.True(t, v.Changed())
		require.Len(t, view(t, v).Contenders, 2)
		fourth := join()
		require.False(t, v.Changed(), "the listing was read just now")
		require.NoError(t, holder.Unlock(t.Context()))
		synctest.Wait()
		require.True(t, v.Changed(), "a node is read at once")
		require.Len(t, view(t, v).Contenders, 1)
		require.Equal(t, survey.Released, v.Ended(path+"/"+holder.Node()))

		time.Sleep(time.Second)
		require.True(t, v.Changed())
		require.Len(t, view(t, v).Contenders, 2)
		require.NoError(t, suite.Wait(t, third).Unlock(t.Context()))
		require.NoError(t, suite.Wait(t, fourth).Unlock(t.Context()))
	})
}

func TestViewerKnowsTheEndOfASessionByItsNodes(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		dying := srv.Client(t)
		suite.Keep(t, dying, root+"/lock", root+"/group")
		lease := suite.Must(t, lock.New(dying, root+"/lock").Lock)
		s := suite.Session(t, dying) // which does not join again
		suite.Ensure(t, s, root+"/group")
		require.NoError(t, s.Create(t.Context(), root+"/group/me", nil, zk.FlagEphemeral))

		v := survey.NewViewer(client(t, srv), root, survey.Limits{})
		require.Len(t, view(t, v).Below, 2)
		suite.Expire(srv, s.ID())
		suite.Soon(t, func() bool { return v.Stale(root+"/lock/"+lease.Node(), root+"/group/me") }, "events") // one after the other
		p := view(t, v)
		require.Empty(t, p.Below[0].Contenders)
		require.Empty(t, p.Below[1].Contenders)
		require.Equal(t, survey.Lost, v.Ended(root+"/lock/"+lease.Node()))
		require.Equal(t, survey.Lost, v.Ended(root+"/group/me"))
	})
}

func TestViewerCountsElementsWithoutReadingThem(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/queue", client(t, srv)
		suite.Keep(t, c, path+"/zkrecipes") // a container that comes again would count
		q := queue.New(c, path)
		suite.Got(q.Offer(t.Context(), []byte("x")))(t)
		v := survey.NewViewer(client(t, srv), path, survey.Limits{})
		first := view(t, v)
		require.Equal(t, look(t, c, path), first)

		before := v.Requests()
		suite.Got(q.Offer(t.Context(), []byte("y")))(t)
		var p *survey.Place
		suite.Soon(t, func() bool { p = view(t, v); return p.Entries.Length == 2 }, "element")
		require.LessOrEqual(t, v.Requests(), before+2)
		require.Equal(t, first.Entries.Created+1, p.Entries.Created)

		// A reservation changes nothing that is watched.
		suite.Must(t, q.Reserve)
		suite.Soon(t, func() bool {
			p, err := v.Look(t.Context(), true)
			return err == nil && p.Entries.Reserved == 1
		}, "reservation")
	})
}

// The server's count of changes turns negative there.
func TestCountGoesOnInTheSecondHalfOfTheNumbers(t *testing.T) {
	srv := recipestest.Start(t)
	path, c := srv.Root(t)+"/queue", client(t, srv)
	q := queue.New(c, path)
	suite.Got(q.Offer(t.Context(), []byte("x")))(t)
	require.NoError(t, srv.Embedded().SetSequence(path, 1<<30-1))
	before := look(t, c, path).Entries.Created

	for range 3 {
		suite.Got(q.Offer(t.Context(), []byte("y")))(t)
	}
	require.Equal(t, before+3, look(t, c, path).Entries.Created)

	empty := srv.Root(t)
	suite.Ensure(t, suite.Session(t, c), empty)
	require.NoError(t, srv.Embedded().SetSequence(empty, 1<<30))
	require.Equal(t, survey.Empty, look(t, c, empty).Recipe)
}

func TestViewerShowsWhatMayNotBeRead(t *testing.T) {
	srv := recipestest.Start(t, like39)
	root := srv.Root(t)
	mine := client(t, srv, protocol.WithAuth("digest", []byte("me:secret")), protocol.WithACL(zk.AuthACL(zk.PermAll)))
	suite.Must(t, lock.New(mine, root+"/hidden").Lock)

	c := client(t, srv)
	v := survey.NewViewer(c, root, survey.Limits{})
	require.Equal(t, look(t, c, root), view(t, v))
	before := v.Requests()
	require.Equal(t, look(t, c, root), view(t, v))
	require.Equal(t, before, v.Requests())
}
