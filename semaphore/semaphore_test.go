package semaphore_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

func TestMain(m *testing.M) { suite.Main(m) }

func acquire(t testing.TB, s *semaphore.Semaphore) *semaphore.Permit {
	t.Helper()
	p, err := s.Acquire(suite.Lasting(t))
	require.NoError(t, err)
	return p
}

func release(t testing.TB, p *semaphore.Permit) {
	t.Helper()
	require.NotNil(t, p)
	require.NoError(t, p.Release(suite.Lasting(t)))
}

func later(ctx context.Context, s *semaphore.Semaphore) <-chan *semaphore.Permit {
	return suite.Later(func() *semaphore.Permit {
		p, _ := s.Acquire(ctx)
		return p
	})
}

func contenders(t *testing.T, s *semaphore.Semaphore, n int) []semaphore.Contender {
	t.Helper()
	return suite.Await(t, n, s.Contenders)
}

func TestPermitsAreGrantedInOrderOfArrival(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/s"
		at := func() *semaphore.Semaphore { return semaphore.New(srv.Client(t), path, 3) }
		var held []*semaphore.Permit
		for range 3 {
			held = append(held, acquire(t, at()))
		}
		var waiting []<-chan *semaphore.Permit
		for i := range 4 {
			waiting = append(waiting, later(t.Context(), at()))
			contenders(t, at(), 4+i)
		}
		_, err := at().TryAcquire(t.Context())
		require.ErrorIs(t, err, semaphore.ErrNoPermit)

		for i, p := range []*semaphore.Permit{held[1], held[2], held[0]} {
			release(t, p)
			next := suite.Wait(t, waiting[i])
			require.NoError(t, next.Err())
			held = append(held, next)
			for _, w := range waiting[i+1:] {
				require.Empty(t, w)
			}
		}
		release(t, held[4])
		release(t, suite.Wait(t, waiting[3]))
		release(t, held[3])
		release(t, held[5])
		contenders(t, at(), 0)
	})
}

// A contender that gives up in the middle of the line makes room for those behind it.
func TestWaiterThatLeavesLetsOthersIn(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/s"
		at := func() *semaphore.Semaphore { return semaphore.New(srv.Client(t), path, 2) }
		first, second := acquire(t, at()), acquire(t, at())
		ctx, giveUp := context.WithCancel(t.Context())
		quitter := later(ctx, at())
		contenders(t, at(), 3)
		last := later(t.Context(), at())
		contenders(t, at(), 4)

		giveUp()
		require.Nil(t, suite.Wait(t, quitter))
		contenders(t, at(), 3)
		release(t, second)

		release(t, suite.Wait(t, last))
		release(t, first)
	})
}

func TestDisagreementIsReported(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/s"
		three, four := semaphore.New(srv.Client(t), path, 3), semaphore.New(srv.Client(t), path, 4)
		p := acquire(t, three)

		_, err := four.Acquire(t.Context())
		require.ErrorIs(t, err, semaphore.ErrPermits)
		require.EqualError(t, err, "semaphore: "+path+": contenders disagree about the number of permits: 4 here, 3 at the path")
		_, err = four.TryAcquire(t.Context())
		require.ErrorIs(t, err, semaphore.ErrPermits)

		release(t, p)
		release(t, acquire(t, four))
	})
}

func TestResizeLetsWaitersIn(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/s"
		s, other := semaphore.New(srv.Client(t), path, 1), semaphore.New(srv.Client(t), path, 1)
		p := acquire(t, s)
		waiting := later(t.Context(), s)
		contenders(t, s, 2)
		refused := suite.Later(func() error { _, err := other.Acquire(t.Context()); return err })
		contenders(t, s, 3)

		require.NoError(t, s.Resize(t.Context(), 2))

		q := suite.Wait(t, waiting)
		require.ErrorIs(t, suite.Wait(t, refused), semaphore.ErrPermits)
		require.NoError(t, p.Err())
		require.NoError(t, other.Resize(t.Context(), 2))
		_, err := other.TryAcquire(t.Context())
		require.ErrorIs(t, err, semaphore.ErrNoPermit)
		release(t, p)
		release(t, acquire(t, other))
		release(t, q)

		require.NoError(t, s.Resize(t.Context(), 1))
		p = acquire(t, s)
		_, err = s.TryAcquire(t.Context())
		require.ErrorIs(t, err, semaphore.ErrNoPermit)
		release(t, p)
	})
}
