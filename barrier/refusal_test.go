package barrier_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

const (
	noAuth = -102
	noNode = -101
)

// Each request that the server refuses once ends the call with that error. A call that goes on
// without the answer would succeed.
func TestRefusedRequestEndsTheCall(t *testing.T) {
	set := func(b *barrier.Barrier, t *testing.T) error { return b.Set(t.Context()) }
	wait := func(b *barrier.Barrier, t *testing.T) error { return b.Wait(t.Context()) }
	remove := func(b *barrier.Barrier, t *testing.T) error { return b.Remove(t.Context()) }
	lasting, ephemeral := []barrier.Option(nil), kinds["ephemeral"]
	for name, test := range map[string]struct {
		op    recipestest.Op
		is    []barrier.Option // the barrier that is set before
		unset bool
		call  func(*barrier.Barrier, *testing.T) error
	}{
		"Set, its node":                {recipestest.OpCreate, lasting, true, set},
		"Set, a barrier that is set":   {recipestest.OpSetData, lasting, false, set},
		"Wait, the sync":               {recipestest.OpSync, lasting, true, wait},
		"Wait, the barrier":            {recipestest.OpGetData, lasting, true, wait},
		"Remove, the sync":             {recipestest.OpSync, lasting, false, remove},
		"Remove, the barrier":          {recipestest.OpGetData, lasting, false, remove},
		"Remove, the marker":           {recipestest.OpCreate, lasting, false, remove},
		"Remove, the deletion":         {recipestest.OpMulti, lasting, false, remove},
		"Remove, the nodes beside":     {recipestest.OpGetChildren, ephemeral, false, remove},
		"Remove, an ephemeral barrier": {recipestest.OpMulti, ephemeral, false, remove},
	} {
		t.Run(name, func(t *testing.T) {
			srv := recipestest.Start(t)
			link, path := srv.Link(t), srv.Root(t)+"/barrier"
			c := link.Client(t)
			_, err := suite.Session(t, c).EnsurePath(t.Context(), srv.Root(t))
			require.NoError(t, err)
			if !test.unset {
				require.NoError(t, barrier.New(srv.Client(t), path, test.is...).Set(t.Context()))
			}
			suite.CatchUp(t, c)

			link.Fail(test.op, "", noAuth, 1)
			require.ErrorIs(t, test.call(barrier.New(c, path), t), zk.ErrNoAuth)
			require.NoError(t, barrier.New(c, path).Remove(t.Context()))
		})
	}
}

func TestRefusedParentsEndSet(t *testing.T) {
	srv := recipestest.Start(t)
	link := srv.Link(t)
	c := link.Client(t)
	link.Fail(recipestest.OpCreateContainer, "", noAuth, 1)
	require.ErrorIs(t, barrier.New(c, srv.Root(t)+"/a/b/barrier").Set(t.Context()), zk.ErrNoAuth)
}

// Another removal's marker is in the way, and its name cannot be read.
func TestRefusedListingOfMarkersEndsRemove(t *testing.T) {
	srv := recipestest.Start(t)
	link, path := srv.Link(t), srv.Root(t)+"/barrier"
	c := link.Client(t)
	b := barrier.New(c, path)
	require.NoError(t, b.Set(t.Context()))
	_, err := suite.Session(t, c).Conn().Create(path+"/other-remove", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	link.Fail(recipestest.OpGetChildren, "", noAuth, 1)
	require.ErrorIs(t, b.Remove(t.Context()), zk.ErrNoAuth)
	require.NoError(t, b.Remove(t.Context()))
}

// A barrier that is removed between the two requests of Set is set again.
func TestBarrierThatVanishesDuringSetIsSet(t *testing.T) {
	srv := recipestest.Start(t)
	link, path := srv.Link(t), srv.Root(t)+"/barrier"
	b := barrier.New(link.Client(t), path)
	require.NoError(t, b.Set(t.Context()))
	link.Fail(recipestest.OpSetData, "", noNode, 1)
	require.NoError(t, b.Set(t.Context()))
	requireSet(t, b)
}

// An events is an observer that keeps what it is told.
type events chan protocol.Event

func (e events) Observe(event protocol.Event) { e <- event }

func TestObserverIsToldOfWaits(t *testing.T) {
	srv := recipestest.Start(t)
	told := make(events, 10)
	b := barrier.New(srv.Client(t, protocol.WithObserver(told)), srv.Root(t)+"/barrier")
	require.NoError(t, b.Wait(t.Context()))
	require.Equal(t, protocol.EventWaiting, suite.Wait(t, told).Kind)
	e := suite.Wait(t, told)
	require.Equal(t, protocol.EventAcquired, e.Kind)
	require.NoError(t, e.Err)

	require.NoError(t, b.Set(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.Wait(ctx), context.DeadlineExceeded)
	for e = suite.Wait(t, told); e.Kind != protocol.EventAcquired; e = suite.Wait(t, told) {
	}
	require.ErrorIs(t, e.Err, context.DeadlineExceeded)
}

// What is refused does not wait, so the observer hears nothing of it.
func TestObserverIsNotToldOfAWaitThatIsRefused(t *testing.T) {
	srv := recipestest.Start(t)
	told := make(events, 10)
	c, path := srv.Client(t, protocol.WithObserver(told)), srv.Root(t)+"/barrier"
	require.ErrorIs(t, barrier.New(c, "relative").Wait(t.Context()), zk.ErrInvalidPath)
	require.NoError(t, barrier.New(c, path).Wait(t.Context()))
	require.Equal(t, path, suite.Wait(t, told).Path)
}
