package rwlock_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

func TestMain(m *testing.M) { suite.Main(m) }

// A verb is Lock or RLock.
type verb func(*rwlock.RWMutex, context.Context) (*rwlock.Lease, error)

var (
	write verb = (*rwlock.RWMutex).Lock
	read  verb = (*rwlock.RWMutex).RLock
)

func must(t *testing.T, v verb, m *rwlock.RWMutex) *rwlock.Lease {
	t.Helper()
	return suite.Must(t, func(ctx context.Context) (*rwlock.Lease, error) { return v(m, ctx) })
}

// enter makes v wait for the lock in the background, and returns when the watcher sees it as the
// n-th in line.
func enter(t *testing.T, v verb, m, watcher *rwlock.RWMutex, n int) <-chan *rwlock.Lease {
	t.Helper()
	lease := suite.Later(func() *rwlock.Lease { l, _ := v(m, t.Context()); return l })
	suite.Await(t, n, watcher.Contenders)
	return lease
}

// granted returns a lease that is granted now, and is held.
func granted(t *testing.T, lease <-chan *rwlock.Lease) *rwlock.Lease {
	t.Helper()
	l := suite.Wait(t, lease)
	require.NotNil(t, l)
	require.NoError(t, l.Err())
	return l
}

// Readers that come one after the other read together, after the writers that came before.
func TestLockIsGrantedInOrderOfArrivalToReadersTogether(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		const arrivals = "WRRWRWWRRRW"
		path := srv.Root(t) + "/order"
		first, waiting := rwlock.New(srv.Client(t), path), []<-chan *rwlock.Lease(nil)
		for i, kind := range arrivals {
			v := map[rune]verb{'R': read, 'W': write}[kind]
			waiting = append(waiting, enter(t, v, rwlock.New(srv.Client(t), path, rwlock.WithData([]byte("host 7"))), first, i+1))
		}
		for i, c := range suite.Await(t, len(arrivals), first.Contenders) {
			require.Equal(t, arrivals[i] == 'W', c.Exclusive)
			require.Equal(t, "host 7", string(c.Data))
		}
		for i := 0; i < len(arrivals); {
			var together []*rwlock.Lease
			for together == nil || i < len(arrivals) && arrivals[i-1] == 'R' && arrivals[i] == 'R' {
				together = append(together, granted(t, waiting[i]))
				require.Equal(t, arrivals[i] == 'W', together[0].Exclusive())
				i++
			}
			for _, behind := range waiting[i:] {
				require.Empty(t, behind)
			}
			suite.Unlock(t, together...)
		}
	})
}

func TestBadInputIsRefusedBeforeAnyIO(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		for _, opt := range []rwlock.Option{
			rwlock.WithSpelling(3), rwlock.WithSpelling(-1), rwlock.WithData(make([]byte, recipe.MaxData)),
		} {
			m := rwlock.New(c, "/a", opt)
			for _, v := range []verb{read, write} {
				require.ErrorContains(t, suite.Err(v(m, t.Context())), "rwlock: ")
			}
		}
		_, err := rwlock.New(c, "/a", rwlock.WithSpelling(3)).Contenders(t.Context())
		require.ErrorContains(t, err, "no such spelling")
		synctest.Wait()
		require.Zero(t, link.Count(recipestest.OpAny))
	})
}
