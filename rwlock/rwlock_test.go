package rwlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

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

func TestCancelledWriterLetsReadersBehindItInAtOnce(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/freed"
		m := rwlock.New(srv.Client(t), path)
		reading := must(t, read, m)
		ctx, cancel := context.WithCancel(t.Context())
		gone := suite.Later(func() error { _, err := rwlock.New(srv.Client(t), path).Lock(ctx); return err })
		suite.Await(t, 2, m.Contenders)
		behind := enter(t, read, rwlock.New(srv.Client(t), path), m, 3)
		cancel()
		require.ErrorIs(t, suite.Wait(t, gone), context.Canceled)
		suite.Unlock(t, granted(t, behind), reading)
	})
}

func TestTryTakesWhatIsFree(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/try"
		m, tried := rwlock.New(srv.Client(t), path), rwlock.New(srv.Client(t), path)
		busy := func(try func(context.Context) (*rwlock.Lease, error)) {
			t.Helper()
			_, err := try(t.Context())
			require.ErrorIs(t, err, rwlock.ErrLocked)
		}
		reading := must(t, read, m)
		busy(tried.TryLock)
		busy(m.TryLock) // there is no upgrade
		suite.Unlock(t, suite.Must(t, tried.TryRLock))
		entered := enter(t, write, m, m, 2)
		busy(tried.TryLock)
		busy(tried.TryRLock) // it would overtake the writer
		suite.Unlock(t, reading)
		writing := granted(t, entered)
		busy(tried.TryLock)
		busy(tried.TryRLock)
		suite.Unlock(t, writing)
		suite.Unlock(t, suite.Must(t, tried.TryLock))
	})
}

func TestAllSpellingsShareOneLine(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c, other := srv.Root(t)+"/spelt", srv.Client(t), srv.Client(t)
		ends := map[rwlock.Spelling][2]string{
			rwlock.Native:  {"-read-0000000000", "-write-0000000000"},
			rwlock.Curator: {"-__READ__0000000000", "-__WRIT__0000000000"},
			rwlock.Kazoo:   {"-__rlock__0000000000", "-__lock__0000000000"},
		}
		for s, end := range ends {
			m := rwlock.New(c, path, rwlock.WithSpelling(s))
			for i, v := range []verb{read, write} {
				l := must(t, v, m)
				require.Regexp(t, end[i]+"$", l.Node())
				require.Equal(t, path+"/"+l.Node(), l.Check().Path)
				require.Equal(t, i == 1, l.Exclusive())
				require.Equal(t, i == 1, suite.Await(t, 1, m.Contenders)[0].Exclusive)
				for s := range ends {
					m := rwlock.New(other, path, rwlock.WithSpelling(s))
					_, err := m.TryLock(t.Context())
					require.ErrorIs(t, err, rwlock.ErrLocked)
					if shared, err := m.TryRLock(t.Context()); err == nil {
						require.False(t, l.Exclusive())
						suite.Unlock(t, shared)
					} else {
						require.True(t, l.Exclusive())
						require.ErrorIs(t, err, rwlock.ErrLocked)
					}
				}
				suite.Unlock(t, l)

				// The sequence starts again at 0, unless the server has removed the empty container.
				if err := suite.Session(t, c).Conn().Delete(path, -1); !errors.Is(err, zk.ErrNoNode) {
					require.NoError(t, err)
				}
			}
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
				_, err := v(m, t.Context())
				require.ErrorContains(t, err, "rwlock: ")
			}
			require.Error(t, m.RDo(t.Context(), func(context.Context, *rwlock.Lease) error { return nil }))
		}
		_, err := rwlock.New(c, "/a", rwlock.WithSpelling(3)).Contenders(t.Context())
		require.ErrorContains(t, err, "no such spelling")
		synctest.Wait()
		require.Zero(t, link.Count(recipestest.OpAny))
	})
}
