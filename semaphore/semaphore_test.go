package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

func TestContendersShowsHoldersAndWaiters(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		s := semaphore.New(srv.Client(t), srv.Root(t)+"/s", 1, semaphore.WithData([]byte("ours")))
		require.NoError(t, s.Resize(t.Context(), 1)) // which leaves a node that is no contender
		p := acquire(t, s)
		waiting := later(t.Context(), s)
		line := suite.Await(t, 2, s.Contenders)
		require.Equal(t, p.Node(), line[0].Node)
		require.Equal(t, p.Token(), line[0].Token)
		for i, c := range line {
			require.Equal(t, i == 0, c.Holds)
			require.Equal(t, "ours", string(c.Data))
			require.NotZero(t, c.Session)
		}

		require.NoError(t, s.Break(t.Context(), p.Node()))
		suite.Wait(t, p.Done())
		require.ErrorIs(t, p.Err(), protocol.ErrLost)
		release(t, suite.Wait(t, waiting))
	})
}

func TestBadInputIsRefusedBeforeAnyIO(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		bad := errors.New("bad option")
		for name, s := range map[string]*semaphore.Semaphore{
			"at least one permit, got 0":  semaphore.New(c, "/a", 0),
			"at least one permit, got -1": semaphore.New(c, "/a", -1),
			"bad option":                  semaphore.New(c, "/a", 1, func(*semaphore.Semaphore) error { return bad }),
			"too large":                   semaphore.New(c, "/a", 1, semaphore.WithData(make([]byte, protocol.MaxData))),
		} {
			_, err := s.Acquire(t.Context())
			require.ErrorContains(t, err, name)
			err = s.Do(t.Context(), func(context.Context, *semaphore.Permit) error { return nil })
			require.ErrorContains(t, err, name)
			if name != "too large" {
				require.ErrorContains(t, s.Resize(t.Context(), 2), name)
			}
		}
		for _, permits := range []int{0, -1} {
			err := semaphore.New(c, "/a", 1).Resize(t.Context(), permits)
			require.EqualError(t, err, fmt.Sprintf("semaphore: /a: a semaphore needs at least one permit, got %d", permits))
		}
		require.Zero(t, link.Count(recipestest.OpAny))
	})
}
