package lock_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// bubbleLinger is for tests of time. m lingers, and other is a plain lock of another client.
func bubbleLinger(t *testing.T, d time.Duration, test func(t *testing.T, srv *recipestest.Server, link *recipestest.Link, m, other *lock.Mutex)) {
	t.Parallel()
	serialLinger(t, d, test)
}

func serialLinger(t *testing.T, d time.Duration, test func(t *testing.T, srv *recipestest.Server, link *recipestest.Link, m, other *lock.Mutex)) {
	recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/linger"
		c := link.Client(t)
		t.Cleanup(func() { c.Close() }) // or the node would be left
		test(t, srv, link, lock.New(c, path, lock.WithLinger(d)), lock.New(srv.Client(t), path))
	})
}

func use(t *testing.T, m *lock.Mutex) int64 {
	t.Helper()
	l := suite.Must(t, m.Lock)
	require.NoError(t, l.Unlock(t.Context()))
	require.ErrorIs(t, l.Err(), protocol.ErrReleased)
	return l.Token()
}

func TestLockThatLingersIsTakenWithoutARequest(t *testing.T) {
	bubbleLinger(t, time.Second, func(t *testing.T, _ *recipestest.Server, link *recipestest.Link, m, other *lock.Mutex) {
		token := use(t, m)
		synctest.Wait()
		before := link.Count(recipestest.OpAny)
		for range 1000 {
			require.Equal(t, token, use(t, m))
		}
		l, err := m.TryLock(t.Context())
		require.NoError(t, err)
		require.Equal(t, token, l.Token())
		_, err = m.TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrLocked)
		require.NoError(t, l.Unlock(t.Context()))
		require.Equal(t, before, link.Count(recipestest.OpAny))
		line, err := other.Contenders(t.Context())
		require.NoError(t, err)
		require.Len(t, line, 1)
		require.Equal(t, l.Node(), line[0].Node)
		require.Contains(t, line[0].Node, "-linger-lock-")
	})
}

func TestLockIsGivenBackWhenItWasNotUsedForAWhile(t *testing.T) {
	bubbleLinger(t, time.Second, func(t *testing.T, _ *recipestest.Server, _ *recipestest.Link, m, other *lock.Mutex) {
		use(t, m)
		time.Sleep(900 * time.Millisecond)
		token := use(t, m)
		l := suite.Must(t, m.Lock)
		require.Equal(t, token, l.Token())
		time.Sleep(5 * time.Second) // in use
		suite.Await(t, 1, other.Contenders)
		require.NoError(t, l.Unlock(t.Context()))
		time.Sleep(999 * time.Millisecond)
		suite.Await(t, 1, other.Contenders)
		time.Sleep(2 * time.Millisecond)
		line, err := other.Contenders(t.Context())
		require.NoError(t, err)
		require.Empty(t, line)
		require.Greater(t, use(t, m), token)
	})
}

func TestUnusedLockGoesToAContenderAtOnce(t *testing.T) {
	bubbleLinger(t, time.Minute, func(t *testing.T, _ *recipestest.Server, _ *recipestest.Link, m, other *lock.Mutex) {
		for range 20 { // also before the line is watched
			token := use(t, m)
			began := time.Now()
			l := suite.Must(t, other.Lock)
			require.Less(t, time.Since(began), 10*time.Millisecond)
			require.Greater(t, l.Token(), token)
			next := suite.Later(func() int64 { return use(t, m) })
			suite.Await(t, 2, other.Contenders)
			require.NoError(t, l.Unlock(t.Context()))
			require.Greater(t, suite.Wait(t, next), l.Token())
		}
	})
}

func TestContenderWaitsForTheLeaseOnly(t *testing.T) {
	bubbleLinger(t, time.Minute, func(t *testing.T, _ *recipestest.Server, _ *recipestest.Link, m, other *lock.Mutex) {
		l := suite.Must(t, m.Lock)
		granted := suite.Later(func() *lock.Lease { return suite.Must(t, other.Lock) })
		time.Sleep(5 * time.Second)
		require.Empty(t, granted)
		unlocked := time.Now()
		require.NoError(t, l.Unlock(t.Context()))
		theirs := suite.Wait(t, granted)
		require.Less(t, time.Since(unlocked), 10*time.Millisecond)
		require.NoError(t, theirs.Unlock(t.Context()))
	})
}

// Callers keep coming, from several goroutines.
func TestContenderWaitsForTheTimeAndOneLeaseWhileCallersCome(t *testing.T) {
	const d, hold = 100 * time.Millisecond, 15 * time.Millisecond
	bubbleLinger(t, time.Hour, func(t *testing.T, _ *recipestest.Server, _ *recipestest.Link, m, other *lock.Mutex) {
		ctx, stop := context.WithCancel(t.Context())
		var wait suite.Group
		var turns, overtook atomic.Int64
		for range 4 {
			wait.Go(func() error {
				for ctx.Err() == nil {
					l, err := m.Lock(t.Context())
					if err != nil {
						return err
					}
					turns.Add(1)
					time.Sleep(hold)
					if err := l.Unlock(t.Context()); err != nil {
						return err
					}
				}
				return nil
			})
		}
		for range 10 {
			time.Sleep(time.Second)
			before, began := turns.Load(), time.Now()
			l := suite.Must(t, other.Lock)
			require.Less(t, time.Since(began), d+hold+10*time.Millisecond)
			require.Greater(t, time.Since(began), d-hold)
			overtook.Store(turns.Load() - before)
			require.InDelta(t, int64(d/hold), overtook.Load(), 2)
			require.NoError(t, l.Unlock(t.Context()))
		}
		stop()
		require.NoError(t, wait.Wait())
	})
}

func TestProcessesShareALockThatLingers(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const processes, hold, d = 4, time.Millisecond, 50 * time.Millisecond
		path, began := srv.Root(t)+"/share", time.Now()
		var each [processes]atomic.Int64
		var clients []*protocol.Client
		var inside, longest atomic.Int64
		var wait suite.Group
		for i := range processes {
			c := srv.Client(t)
			clients = append(clients, c)
			m := lock.New(c, path, lock.WithLinger(d))
			for range 16 {
				wait.Go(func() error {
					for time.Since(began) < 20*time.Second {
						called := time.Now()
						l, err := m.Lock(t.Context())
						if err != nil {
							return err
						}
						longest.Store(max(longest.Load(), int64(time.Since(called))))
						if n := inside.Add(1); n != 1 {
							return fmt.Errorf("%d inside", n)
						}
						time.Sleep(hold)
						each[i].Add(1)
						inside.Add(-1)
						if err := l.Unlock(t.Context()); err != nil {
							return err
						}
					}
					return nil
				})
			}
		}
		require.NoError(t, wait.Wait())
		all := int64(0)
		for i := range each {
			require.InDelta(t, each[0].Load(), each[i].Load(), float64(each[0].Load())/10)
			all += each[i].Load()
		}
		require.Greater(t, all, int64(18_000), "of 20,000 that are possible")
		require.Less(t, time.Duration(longest.Load()), processes*(d+hold)+20*time.Millisecond)
		suite.Close(t, clients...)
	})
}

func TestWaiterThatGivesUpDoesNotKeepTheNode(t *testing.T) {
	bubbleLinger(t, time.Hour, func(t *testing.T, _ *recipestest.Server, _ *recipestest.Link, m, other *lock.Mutex) {
		for range 50 {
			l := suite.Must(t, m.Lock)
			ctx, giveUp := context.WithCancel(t.Context())
			quitters := make(chan error, 3)
			for range 3 {
				go func() {
					l, err := m.Lock(ctx)
					if err == nil {
						err = l.Unlock(context.Background())
					}
					quitters <- err
				}()
			}
			granted := suite.Later(func() *lock.Lease { return suite.Must(t, other.Lock) })
			suite.Await(t, 2, other.Contenders)
			synctest.Wait()
			go giveUp()
			go l.Unlock(t.Context())
			began := time.Now()
			theirs := suite.Wait(t, granted)
			require.Less(t, time.Since(began), time.Second)
			require.NoError(t, theirs.Unlock(t.Context()))
			for range 3 {
				if err := <-quitters; err != nil {
					require.ErrorIs(t, err, context.Canceled)
				}
			}
		}
	})
}

func TestTryLockElsewhereGetsALockThatLingers(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/try", srv.Client(t)
		m, other := lock.New(c, path, lock.WithLinger(time.Minute)), lock.New(srv.Client(t), path)
		for range 5 {
			use(t, m)
			_, err := other.Contenders(t.Context()) // which syncs
			require.NoError(t, err)
			l := suite.Must(t, other.TryLock)
			require.NoError(t, l.Unlock(t.Context()))
		}
		suite.Close(t, c)
	})
}

func TestTryLockWithdrawsFromALockInUse(t *testing.T) {
	bubbleLinger(t, time.Minute, func(t *testing.T, _ *recipestest.Server, _ *recipestest.Link, m, other *lock.Mutex) {
		l := suite.Must(t, m.Lock)
		began := time.Now()
		_, err := other.TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrLocked)
		require.InDelta(t, 250*time.Millisecond, time.Since(began), float64(10*time.Millisecond))
		synctest.Wait() // it has withdrawn
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err = other.TryLock(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		line, err := other.Contenders(t.Context())
		require.NoError(t, err)
		require.Len(t, line, 1, "they have withdrawn")

		// A line with others in it is busy.
		waits := suite.Later(func() int64 { return use(t, other) })
		suite.Await(t, 2, other.Contenders)
		began = time.Now()
		_, err = other.TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrLocked)
		require.Less(t, time.Since(began), 10*time.Millisecond)
		require.NoError(t, l.Unlock(t.Context()))
		suite.Wait(t, waits)
	})
}

func TestSimpleGetsALockThatLingers(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/simple", srv.Client(t)
		m, s := lock.New(c, path, lock.WithLinger(time.Hour)), lock.NewSimple(srv.Client(t), path)
		for _, acquire := range []func(context.Context) (*lock.Lease, error){s.Lock, s.TryLock} {
			use(t, m)
			require.NoError(t, suite.Must(t, acquire).Unlock(t.Context()))
		}
		_, err := lock.NewSimple(c, path, lock.WithLinger(time.Hour)).Lock(t.Context())
		require.ErrorContains(t, err, "linger")
		_, err = lock.New(c, path, lock.WithLinger(0)).Lock(t.Context())
		require.ErrorContains(t, err, "linger")
		suite.Close(t, c)
	})
}

func TestLossEndsTheLeaseAndTheKeeping(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, srv *recipestest.Server, other *lock.Mutex, c lock.Contender){
		"node": func(t *testing.T, _ *recipestest.Server, other *lock.Mutex, c lock.Contender) {
			require.NoError(t, other.Break(t.Context(), c.Node))
		},
		"session": func(_ *testing.T, srv *recipestest.Server, _ *lock.Mutex, c lock.Contender) {
			srv.ExpireSession(c.Session)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubbleLinger(t, time.Hour, func(t *testing.T, srv *recipestest.Server, _ *recipestest.Link, m, other *lock.Mutex) {
				for _, age := range []time.Duration{0, time.Second} {
					token := use(t, m)
					l := suite.Must(t, m.Lock)
					require.Equal(t, token, l.Token())
					next := suite.Later(func() int64 { return use(t, m) })
					time.Sleep(age)
					lose(t, srv, other, suite.Await(t, 1, other.Contenders)[0])
					suite.Wait(t, l.Done())
					require.ErrorIs(t, l.Err(), protocol.ErrLost)
					require.ErrorIs(t, l.Unlock(t.Context()), protocol.ErrLost)
					require.Greater(t, suite.Wait(t, next), token)

					use(t, m) // and the same while nobody holds
					lose(t, srv, other, suite.Await(t, 1, other.Contenders)[0])
					synctest.Wait()
					theirs := suite.Must(t, other.Lock)
					next = suite.Later(func() int64 { return use(t, m) })
					time.Sleep(time.Second)
					require.Empty(t, next)
					require.NoError(t, theirs.Unlock(t.Context()))
					require.Greater(t, suite.Wait(t, next), theirs.Token())
				}
			})
		})
	}
}

func TestRevocationEndsTheKeeping(t *testing.T) {
	bubbleLinger(t, time.Hour, func(t *testing.T, _ *recipestest.Server, _ *recipestest.Link, m, other *lock.Mutex) {
		l := suite.Must(t, m.Lock)
		next := suite.Later(func() int64 { return use(t, m) })
		require.NoError(t, other.Revoke(t.Context(), l.Node()))
		suite.Wait(t, l.Revoked())
		require.NoError(t, l.Err())
		require.NoError(t, l.Unlock(t.Context()))
		token := suite.Wait(t, next)
		require.Greater(t, token, l.Token())

		node := suite.Await(t, 1, other.Contenders)[0].Node
		require.NoError(t, other.Revoke(t.Context(), node))
		synctest.Wait()
		line, err := other.Contenders(t.Context())
		require.NoError(t, err)
		require.Empty(t, line)
	})
}

// The node may change before the line was listed, after which the keeper hears of it.
func TestRevocationThatComesWithTheGrantEndsTheKeeping(t *testing.T) {
	bubbleLinger(t, time.Hour, func(t *testing.T, _ *recipestest.Server, _ *recipestest.Link, m, other *lock.Mutex) {
		for range 200 {
			l := suite.Must(t, m.Lock)
			require.NoError(t, other.Revoke(t.Context(), l.Node()))
			suite.Wait(t, l.Revoked())
			require.NoError(t, l.Unlock(t.Context()))
			require.Greater(t, use(t, m), l.Token())
			require.NoError(t, suite.Must(t, other.Lock).Unlock(t.Context()))
		}
	})
}

func TestCloseGivesBackWhatLingers(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/close", srv.Client(t)
		m, other := lock.New(c, path, lock.WithLinger(time.Hour)), lock.New(srv.Client(t), path)
		use(t, m)
		suite.Close(t, c)
		suite.Await(t, 0, other.Contenders)
		_, err := m.Lock(t.Context())
		require.ErrorIs(t, err, protocol.ErrClosed)
	})
}

// What happens during a cut is learnt afterwards.
func TestWhatHappensDuringACutEndsTheKeeping(t *testing.T) {
	bubbleLinger(t, time.Hour, func(t *testing.T, _ *recipestest.Server, link *recipestest.Link, m, other *lock.Mutex) {
		for name, happens := range map[string]func(node string) (clear func()){
			"a contender comes": func(string) func() {
				granted := suite.Later(func() *lock.Lease { return suite.Must(t, other.Lock) })
				return func() { require.NoError(t, suite.Wait(t, granted).Unlock(t.Context())) }
			},
			"the node is broken": func(node string) func() {
				require.NoError(t, other.Break(t.Context(), node))
				l := suite.Must(t, other.Lock)
				return func() {
					time.Sleep(time.Second)
					require.NoError(t, l.Unlock(t.Context()))
				}
			},
			"the lock is revoked": func(node string) func() {
				require.NoError(t, other.Revoke(t.Context(), node))
				return func() { time.Sleep(2 * time.Second) }
			},
		} {
			token := use(t, m)
			node := suite.Await(t, 1, other.Contenders)[0].Node
			synctest.Wait()
			link.Cut()
			clear := happens(node)
			time.Sleep(time.Second)
			link.Heal()
			clear()
			require.Greater(t, use(t, m), token, name)
		}
	})
}

// Nothing is lent without a connection, as another client may have broken the node meanwhile.
func TestCallerInACutWaitsForTheConnection(t *testing.T) {
	bubbleLinger(t, time.Hour, func(t *testing.T, srv *recipestest.Server, link *recipestest.Link, m, other *lock.Mutex) {
		token := use(t, m)
		synctest.Wait()
		link.Cut()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := m.Lock(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = m.TryLock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		session := suite.Await(t, 1, other.Contenders)[0].Session

		time.Sleep(5 * time.Second) // of the 10 of the session
		later := suite.Later(func() int64 { return use(t, m) })
		time.Sleep(time.Second)
		require.Empty(t, later)
		link.Heal()
		require.Equal(t, token, suite.Wait(t, later), "the unused node has cost no session")
		require.Equal(t, session, suite.Await(t, 1, other.Contenders)[0].Session)
	})
}

// The node is broken, and another client holds the lock, before the caller's connection is back.
func TestCallerInACutGetsNoBrokenNode(t *testing.T) {
	bubbleLinger(t, time.Hour, func(t *testing.T, _ *recipestest.Server, link *recipestest.Link, m, other *lock.Mutex) {
		for range 20 {
			use(t, m)
			node := suite.Await(t, 1, other.Contenders)[0].Node
			synctest.Wait()
			link.Cut()
			synctest.Wait()
			require.NoError(t, other.Break(t.Context(), node))
			theirs := suite.Must(t, other.Lock)
			next := suite.Later(func() int64 { return use(t, m) })
			time.Sleep(time.Second)
			link.Heal()
			time.Sleep(2 * time.Second)
			require.Empty(t, next, "two holders")
			require.NoError(t, theirs.Unlock(t.Context()))
			require.Greater(t, suite.Wait(t, next), theirs.Token())
		}
	})
}

// The connection is back at a member that has not heard of the end of the node.
func TestCallerAtAMemberThatLagsGetsNoBrokenNode(t *testing.T) {
	bubbleLinger(t, time.Hour, func(t *testing.T, srv *recipestest.Server, link *recipestest.Link, m, other *lock.Mutex) {
		late := srv.Embedded().Follower()
		use(t, m)
		node := suite.Await(t, 1, other.Contenders)[0].Node
		synctest.Wait()
		late.Lag(time.Second)
		link.Move(late)
		link.Cut()
		synctest.Wait()
		require.NoError(t, other.Break(t.Context(), node))
		theirs := suite.Must(t, other.Lock)
		link.Heal()
		next := suite.Later(func() int64 { return use(t, m) })
		time.Sleep(2 * time.Second)
		require.Empty(t, next, "two holders")
		require.NoError(t, theirs.Unlock(t.Context()))
		require.Greater(t, suite.Wait(t, next), theirs.Token())
	})
}

// The time for which the lock is not used ends while a caller waits for the connection in vain.
func TestCallerThatGivesUpInACutDoesNotKeepTheNode(t *testing.T) {
	bubbleLinger(t, 500*time.Millisecond, func(t *testing.T, _ *recipestest.Server, link *recipestest.Link, m, other *lock.Mutex) {
		use(t, m)
		synctest.Wait()
		link.Cut()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := m.Lock(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		link.Heal()
		time.Sleep(3 * time.Second)
		line, err := other.Contenders(t.Context())
		require.NoError(t, err)
		require.Empty(t, line)
	})
}

// A caller that gets no lease is no use of the lock.
func TestCallerThatGivesUpDoesNotProlongTheKeeping(t *testing.T) {
	bubbleLinger(t, time.Second, func(t *testing.T, _ *recipestest.Server, link *recipestest.Link, m, other *lock.Mutex) {
		use(t, m)
		synctest.Wait()
		link.Cut()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
		_, err := m.Lock(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		link.Heal()
		time.Sleep(800 * time.Millisecond)
		line, err := other.Contenders(t.Context())
		require.NoError(t, err)
		require.Empty(t, line)
	})
}

// A session that nothing needs is not kept fresh for a node that nobody uses.
func TestLockThatLingersCostsNextToNothing(t *testing.T) {
	bubbleLinger(t, time.Hour, func(t *testing.T, _ *recipestest.Server, link *recipestest.Link, m, _ *lock.Mutex) {
		token := use(t, m)
		synctest.Wait()
		count := func() int { return link.Count(recipestest.OpAny) }
		before := count()
		time.Sleep(30*time.Minute + 30*time.Second)
		require.LessOrEqual(t, count()-before, 2*30, "the line and the node are looked at once a minute")
		before = count()
		require.Equal(t, token, use(t, m))
		require.Equal(t, 1, count()-before, "the session is confirmed")
	})
}

func TestLocksThatLingerAreHeldTogether(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		var clients []*protocol.Client
		var wait suite.Group
		var inside atomic.Int32
		for range 3 {
			c := srv.Client(t)
			clients = append(clients, c)
			a := lock.New(c, root+"/a", lock.WithLinger(50*time.Millisecond))
			b := lock.New(c, root+"/b", lock.WithLinger(50*time.Millisecond))
			for range 3 {
				wait.Go(func() error {
					for range 20 {
						all, err := lock.LockAll(t.Context(), b, a)
						if err != nil {
							return err
						}
						if n := inside.Add(1); n != 1 {
							return fmt.Errorf("%d inside", n)
						}
						time.Sleep(time.Millisecond)
						inside.Add(-1)
						if err := all.Unlock(t.Context()); err != nil {
							return err
						}
						err = a.Do(t.Context(), func(context.Context, *lock.Lease) error { return nil })
						if err != nil {
							return err
						}
					}
					return nil
				})
			}
		}
		require.NoError(t, wait.Wait())
		suite.Close(t, clients...)
	})
}

// A node may outlast any number of leases, which must leave nothing with it.
func TestLeasesLeaveNothingWithANodeThatLingers(t *testing.T) { //nolint:paralleltest // it counts goroutines
	serialLinger(t, time.Hour, func(t *testing.T, _ *recipestest.Server, _ *recipestest.Link, m, _ *lock.Mutex) {
		cycle := func(n int) {
			for range n {
				l := suite.Must(t, m.Lock)
				l.Revoked()
				time.Sleep(25 * time.Millisecond) // it is watched for itself
				require.NoError(t, l.Unlock(t.Context()))
			}
			synctest.Wait()
			runtime.GC()
		}
		cycle(100)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		goroutines := runtime.NumGoroutine()
		cycle(5000)
		runtime.ReadMemStats(&after)
		require.Less(t, runtime.NumGoroutine(), goroutines+10)
		require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(2<<20))
	})
}

// Each node that goes to a contender takes all with it that was kept for it.
func TestNodesThatAreGivenBackLeaveNothing(t *testing.T) { //nolint:paralleltest // it counts goroutines and bytes
	serialLinger(t, time.Hour, func(t *testing.T, _ *recipestest.Server, _ *recipestest.Link, m, other *lock.Mutex) {
		cycle := func(n int) (heap int64) {
			for range n {
				use(t, m)
				use(t, other)
			}
			synctest.Wait()
			runtime.GC()
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			return int64(stats.HeapAlloc)
		}
		goroutines := runtime.NumGoroutine()
		before := cycle(500)
		grown := cycle(3000) - before
		t.Logf("%d bytes", grown)
		require.Less(t, grown, int64(1<<20))
		time.Sleep(2 * time.Minute) // nothing is looked at any more
		require.LessOrEqual(t, runtime.NumGoroutine(), goroutines+2)
	})
}

// A contender that has come and gone costs the node, and no more.
func TestContenderThatWithdraws(t *testing.T) {
	bubbleLinger(t, time.Hour, func(t *testing.T, _ *recipestest.Server, _ *recipestest.Link, m, other *lock.Mutex) {
		l := suite.Must(t, m.Lock)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := other.Lock(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		require.NoError(t, l.Unlock(t.Context()))
		require.Greater(t, use(t, m), l.Token())
	})
}

// A deafConn loses the events that come while deaf is set.
type deafConn struct {
	net.Conn
	deaf  *atomic.Bool
	ready []byte
	first bool // the handshake was read
}

func (c *deafConn) Read(p []byte) (int, error) {
	for len(c.ready) == 0 {
		var head [4]byte
		if _, err := io.ReadFull(c.Conn, head[:]); err != nil {
			return 0, err
		}
		frame := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(c.Conn, frame); err != nil {
			return 0, err
		}
		event := c.first && int32(binary.BigEndian.Uint32(frame)) == -1
		c.first = true
		if !event || !c.deaf.Load() {
			c.ready = append(head[:], frame...)
		}
	}
	n := copy(p, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

// A server that loses an event keeps the other contender waiting for a minute.
func TestContenderWhoseEventIsLostWaitsForAMinuteAtMost(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		var deaf atomic.Bool
		path := srv.Root(t) + "/deaf"
		c, err := protocol.Connect(t.Context(), srv.ConnectString(), protocol.WithDialer(
			func(network, address string, timeout time.Duration) (net.Conn, error) {
				conn, err := srv.Dial(network, address, timeout)
				if err != nil {
					return nil, err
				}
				return &deafConn{Conn: conn, deaf: &deaf}, nil
			}))
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		m, other := lock.New(c, path, lock.WithLinger(time.Hour)), lock.New(srv.Client(t), path)
		use(t, m)
		synctest.Wait()
		deaf.Store(true)
		time.Sleep(20 * time.Second)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		l, err := other.Lock(ctx)
		require.NoError(t, err)
		require.InDelta(t, 40*time.Second, time.Since(began), float64(time.Second))
		require.NoError(t, l.Unlock(t.Context()))
	})
}

func TestContendersShowThatANodeLingers(t *testing.T) {
	bubbleLinger(t, time.Hour, func(t *testing.T, _ *recipestest.Server, _ *recipestest.Link, m, other *lock.Mutex) {
		l := suite.Must(t, m.Lock)
		waits := suite.Later(func() int64 { return use(t, other) })
		line := suite.Await(t, 2, other.Contenders)
		require.True(t, line[0].Lingers && line[0].Holds)
		require.False(t, line[1].Lingers || line[1].Holds)
		require.NoError(t, l.Unlock(t.Context()))
		suite.Wait(t, waits)
	})
}

// A lease that is lent without a request is a wait and a hold as any other.
func TestObserverReceivesTheEventsOfALentLease(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		var events events
		c := srv.Client(t)
		m := lock.New(c.With(protocol.WithObserver(&events)), srv.Root(t)+"/events", lock.WithLinger(time.Hour))
		for range 3 {
			use(t, m)
		}
		synctest.Wait()
		require.Len(t, events.all, 9)
		for i, e := range events.all {
			require.Equal(t, []protocol.EventKind{protocol.EventWaiting, protocol.EventAcquired, protocol.EventReleased}[i%3], e.Kind)
			require.Equal(t, i%3 != 0, e.Token != 0)
		}
		suite.Close(t, c)
	})
}

type events struct{ all []protocol.Event }

func (es *events) Observe(e protocol.Event) { es.all = append(es.all, e) }

// Another library tries: it creates a node, lists the line, and deletes the node if it is not first.
func TestThirdTryOfAnotherLibrarySucceeds(t *testing.T) {
	for name, callers := range map[string]int{"used all the time": 4, "used now and then": 1} {
		t.Run(name, func(t *testing.T) {
			bubbleLinger(t, time.Second, func(t *testing.T, srv *recipestest.Server, _ *recipestest.Link, m, other *lock.Mutex) {
				ctx, stop := context.WithCancel(t.Context())
				var wait suite.Group
				for range callers {
					wait.Go(func() error {
						for ctx.Err() == nil {
							l, err := m.Lock(t.Context())
							if err != nil {
								return err
							}
							time.Sleep(3 * time.Millisecond)
							if err := l.Unlock(t.Context()); err != nil {
								return err
							}
							time.Sleep(time.Duration(5/callers) * time.Millisecond)
						}
						return nil
					})
				}
				conn := srv.Conn(t)
				path := lockPath(t, other)
				for range 3 {
					time.Sleep(4 * time.Second)
					tries := 1
					for !tryForeign(t, conn, path) {
						time.Sleep(time.Second)
						tries++
					}
					require.LessOrEqual(t, tries, 3)
				}
				stop()
				require.NoError(t, wait.Wait())
			})
		})
	}
}

// A waiter of another library is no reason to stand back.
func TestWaitersOfAnotherLibraryCostNoTime(t *testing.T) {
	bubbleLinger(t, time.Hour, func(t *testing.T, srv *recipestest.Server, _ *recipestest.Link, m, other *lock.Mutex) {
		theirs := zk.NewLock(srv.Conn(t), lockPath(t, other), zk.WorldACL(zk.PermAll))
		for range 10 {
			use(t, m)
			require.NoError(t, theirs.Lock())
			time.Sleep(100 * time.Millisecond)
			require.NoError(t, theirs.Unlock())
			began := time.Now()
			use(t, m)
			require.Less(t, time.Since(began), 100*time.Millisecond)
		}
	})
}

func tryForeign(t *testing.T, conn *zk.Conn, path string) bool {
	t.Helper()
	node, err := conn.CreateProtectedEphemeralSequential(path+"/lock-", nil, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	line, _, err := conn.Children(path)
	require.NoError(t, err)
	first := node
	for _, n := range line {
		if n[len(n)-10:] < first[len(first)-10:] {
			first = n
		}
	}
	require.NoError(t, conn.Delete(node, -1))
	return first == node
}

// Of the nodes of a client that linger unused, a limited number stays.
func TestOldestUnusedNodeGoesFirst(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, root := srv.Client(t), srv.Root(t)
		var all []*lock.Mutex
		for i := range 10 {
			all = append(all, lock.New(c, fmt.Sprint(root, "/", i), lock.WithLinger(time.Hour), lock.WithLingerLimit(3)))
		}
		use(t, all[0])
		used := suite.Must(t, all[0].Lock) // it was lent
		for _, m := range append(all[1:], all[2], all[9]) {
			use(t, m)
			synctest.Wait()
		}
		for i, m := range all {
			line, err := m.Contenders(t.Context())
			require.NoError(t, err)
			there := i == 0 || i == 2 || i >= 8
			require.Len(t, line, map[bool]int{true: 1}[there], i)
		}
		require.NoError(t, used.Unlock(t.Context()))
		_, err := lock.New(c, root, lock.WithLingerLimit(0)).Lock(t.Context())
		require.ErrorContains(t, err, "linger")
		suite.Close(t, c)
	})
}

// The others have greater limits.
func TestLimitCountsTheNodesOfAll(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, root := srv.Client(t), srv.Root(t)
		var all []*lock.Mutex
		for i := range 10 {
			all = append(all, lock.New(c, fmt.Sprint(root, "/", i), lock.WithLinger(time.Hour)))
		}
		all = append(all, lock.New(c, root+"/last", lock.WithLinger(time.Hour), lock.WithLingerLimit(3)))
		for _, m := range all {
			use(t, m)
		}
		synctest.Wait()
		for i, m := range all {
			line, err := m.Contenders(t.Context())
			require.NoError(t, err)
			require.Len(t, line, map[bool]int{true: 1}[i > 7], i)
		}
		suite.Close(t, c)
	})
}

// An unused lock takes no goroutine of its own, and little memory.
func TestManyLocksLingerInLittleMemory(t *testing.T) { //nolint:paralleltest // it counts goroutines and bytes
	const n = 2000
	serialLinger(t, 24*time.Hour, func(t *testing.T, srv *recipestest.Server, link *recipestest.Link, _, _ *lock.Mutex) {
		c := link.Client(t)
		memory := func(opts ...lock.Option) (bytes, goroutines int) {
			var before, after runtime.MemStats
			root := srv.Root(t)
			all := make([]*lock.Mutex, n)
			leases := make([]*lock.Lease, n)
			runtime.GC()
			runtime.ReadMemStats(&before)
			goroutines = runtime.NumGoroutine()
			for i := range all {
				all[i] = lock.New(c, fmt.Sprint(root, "/", i), append(opts, lock.WithLingerLimit(n))...)
				leases[i] = suite.Must(t, all[i].Lock)
				if len(opts) > 0 {
					require.NoError(t, leases[i].Unlock(t.Context()))
					leases[i] = nil
				}
			}
			time.Sleep(time.Second)
			synctest.Wait()
			runtime.GC()
			runtime.ReadMemStats(&after)
			bytes, goroutines = int(after.HeapAlloc-before.HeapAlloc)/n, runtime.NumGoroutine()-goroutines
			runtime.KeepAlive(all)
			for _, l := range leases {
				if l != nil {
					require.NoError(t, l.Unlock(t.Context()))
				}
			}
			return bytes, goroutines
		}
		held, _ := memory()
		lingers, goroutines := memory(lock.WithLinger(time.Hour))
		t.Logf("a lease that is held takes %d bytes with its server, an unused node %d", held, lingers)
		require.Less(t, goroutines, 10)
		require.Less(t, lingers-held, 2000)
		suite.Close(t, c)
	})
}

func lockPath(t *testing.T, m *lock.Mutex) string {
	t.Helper()
	err := m.Break(t.Context(), "nobody") // the error has the path
	require.Error(t, err)
	_, rest, _ := strings.Cut(err.Error(), ": ")
	path, _, _ := strings.Cut(rest, ": ")
	return path
}

// No lease lives for long enough to be watched for itself.
func TestNodeThatIsBrokenIsNotLentInShortTurns(t *testing.T) {
	bubbleLinger(t, time.Hour, func(t *testing.T, _ *recipestest.Server, _ *recipestest.Link, m, other *lock.Mutex) {
		turn := func() int64 {
			l := suite.Must(t, m.Lock)
			time.Sleep(time.Millisecond)
			l.Unlock(t.Context())
			return l.Token()
		}
		for range 20 {
			token := turn()
			require.Equal(t, token, turn())
			require.NoError(t, other.Break(t.Context(), suite.Await(t, 1, other.Contenders)[0].Node))
			synctest.Wait() // for the event
			require.Greater(t, turn(), token)
		}
	})
}

// A contender comes while a caller waits for the connection. It is a matter of chance which is first.
func TestCallerWhoseTimeIsOverGoesToTheLine(t *testing.T) {
	bubbleLinger(t, time.Hour, func(t *testing.T, _ *recipestest.Server, link *recipestest.Link, m, other *lock.Mutex) {
		token := use(t, m)
		synctest.Wait()
		link.Cut()
		synctest.Wait()
		next := suite.Later(func() int64 { return use(t, m) }) // it waits for the connection
		theirs := suite.Later(func() *lock.Lease { return suite.Must(t, other.Lock) })
		time.Sleep(time.Second)
		require.Empty(t, theirs)
		link.Heal()
		l := suite.Wait(t, theirs)
		require.Greater(t, l.Token(), token)
		require.NoError(t, l.Unlock(t.Context()))
		suite.Wait(t, next)
	})
}
