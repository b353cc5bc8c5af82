package lock_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A world has a lock m that lingers, and a plain lock of another client.
type world struct {
	srv      *recipestest.Server
	link     *recipestest.Link // m's
	path     string
	c        *protocol.Client // m's
	m, other *lock.Mutex
}

func linger(t *testing.T, d time.Duration, test func(t *testing.T, w *world)) {
	t.Parallel()
	serialLinger(t, d, test)
}

func serialLinger(t *testing.T, d time.Duration, test func(t *testing.T, w *world)) {
	recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		w := &world{srv: srv, link: srv.Link(t), path: srv.Root(t) + "/linger"}
		w.c = w.link.Client(t)
		t.Cleanup(func() { w.c.Close() }) // or the node would be left
		w.m, w.other = lock.New(w.c, w.path, lock.WithLinger(d)), lock.New(srv.Client(t), w.path)
		test(t, w)
	})
}

// inLine returns how many contenders there are.
func inLine(t *testing.T, m *lock.Mutex) int {
	t.Helper()
	synctest.Wait()
	line := suite.Must(t, m.Contenders)
	return len(line)
}

// node returns the name of the only node in line.
func (w *world) node(t *testing.T) string { return suite.Await(t, 1, w.other.Contenders)[0].Node }

// busy has callers of m hold it all the time, until stop is called.
func (w *world) busy(t *testing.T, callers int, hold, pause time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wait suite.Group
	for range callers {
		wait.Go(func() error {
			for ctx.Err() == nil {
				err := w.m.Do(t.Context(), func(context.Context, *lock.Lease) error { time.Sleep(hold); return nil })
				if err != nil {
					return err
				}
				time.Sleep(pause)
			}
			return nil
		})
	}
	return func() {
		cancel()
		require.NoError(t, wait.Wait())
	}
}

func use(t *testing.T, m *lock.Mutex) int64 {
	t.Helper()
	l := suite.Must(t, m.Lock)
	suite.Unlock(t, l)
	require.ErrorIs(t, l.Err(), protocol.ErrReleased)
	return l.Token()
}

// Callers keep coming, from several goroutines.
func TestContenderWaitsForTheTimeAndOneLeaseWhileCallersCome(t *testing.T) {
	const d, hold = 100 * time.Millisecond, 15 * time.Millisecond
	linger(t, time.Hour, func(t *testing.T, w *world) {
		defer w.busy(t, 4, hold, 0)()
		for range 10 {
			time.Sleep(time.Second)
			began := time.Now()
			use(t, w.other) // which is given back before a check that may fail: stop waits for m's callers
			require.InDelta(t, d+hold/2, time.Since(began), float64(hold/2+10*time.Millisecond))
		}
	})
}

func TestWaiterThatGivesUpDoesNotKeepTheNode(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		for range 50 {
			l := suite.Must(t, w.m.Lock)
			ctx, giveUp := context.WithCancel(t.Context())
			var quits suite.Group
			for range 3 {
				quits.Go(func() error { return w.m.Do(ctx, func(context.Context, *lock.Lease) error { return nil }) })
			}
			granted := suite.Later(func() int64 { return use(t, w.other) })
			suite.Await(t, 2, w.other.Contenders)
			synctest.Wait()
			go giveUp()
			go l.Unlock(t.Context())
			began := time.Now()
			suite.Wait(t, granted)
			require.Less(t, time.Since(began), 50*time.Millisecond)
			quits.Wait()
		}
	})
}

func TestTryLockWithdrawsFromALockInUse(t *testing.T) {
	linger(t, time.Minute, func(t *testing.T, w *world) {
		l, began := suite.Must(t, w.m.Lock), time.Now()
		require.ErrorIs(t, suite.Err(w.other.TryLock(t.Context())), lock.ErrLocked)
		require.InDelta(t, 250*time.Millisecond, time.Since(began), float64(10*time.Millisecond))
		require.Equal(t, 1, inLine(t, w.other))
		// A line with others in it is busy.
		waits := suite.Later(func() int64 { return use(t, w.other) })
		suite.Await(t, 2, w.other.Contenders)
		began = time.Now()
		require.ErrorIs(t, suite.Err(w.other.TryLock(t.Context())), lock.ErrLocked)
		require.Less(t, time.Since(began), 10*time.Millisecond)
		suite.Unlock(t, l)
		suite.Wait(t, waits)
	})
}

// The request may come before the node is watched, and while it is not used.
func TestRevocationEndsTheKeeping(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		for range 20 {
			l := suite.Must(t, w.m.Lock)
			require.NoError(t, w.other.Revoke(t.Context(), l.Node()))
			suite.Wait(t, l.Revoked())
			suite.Unlock(t, l)
			require.Greater(t, use(t, w.m), l.Token())
			require.NoError(t, w.other.Revoke(t.Context(), w.node(t)))
			require.Zero(t, inLine(t, w.other))
		}
	})
}

// No lease lives for long enough to be watched for itself. In the end the line can't be listed, and
// the node is watched all the same.
func TestNodeThatIsBrokenIsNotLentInShortTurns(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		// A line that may not be listed may have contenders.
		w.link.Fail(recipestest.OpGetChildren, w.path, int32(zkwire.CodeNoAuth), 1)
		use(t, w.m)
		require.Zero(t, inLine(t, w.other))

		for i := range 20 {
			if i == 10 {
				w.link.Fail(recipestest.OpGetChildren, w.path, int32(zkwire.CodeConnectionLoss), 1_000_000)
			}
			token := use(t, w.m)
			require.Equal(t, token, use(t, w.m))
			require.NoError(t, w.other.Break(t.Context(), w.node(t)))
			require.Zero(t, inLine(t, w.other)) // the event has come
			require.Greater(t, use(t, w.m), token)
		}
	})
}

// Another client may have broken the node during a cut, so a node is lent over one connection only.
func TestNodeIsGivenBackAfterACut(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		token := use(t, w.m)
		synctest.Wait()
		w.link.Cut()
		synctest.Wait()
		ctx := suite.Within(t, time.Second)
		require.ErrorIs(t, suite.Err(w.m.Lock(ctx)), context.DeadlineExceeded)
		later := suite.Later(func() int64 { return use(t, w.m) })
		time.Sleep(5 * time.Second) // of the 10 of the session
		require.Empty(t, later)
		w.link.Heal()
		require.Greater(t, suite.Wait(t, later), token)

		session := suite.Session(t, w.c).ID()
		suite.Reconnect(t, w.link, w.c)
		require.Zero(t, inLine(t, w.other))
		require.Equal(t, session, suite.Session(t, w.c).ID(), "the unused node has cost no session")
	})
}

// Another client has broken the node and holds the lock. The connection is back at a member that
// has not heard of that.
func TestCallerAtAMemberThatLagsGetsNoBrokenNode(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		use(t, w.m)
		node, late := w.node(t), w.srv.Embedded().Follower()
		synctest.Wait()
		w.link.Cut()
		synctest.Wait() // or the client may not have noticed
		late.Lag(time.Second)
		w.link.Move(late)
		require.NoError(t, w.other.Break(t.Context(), node))
		theirs := suite.Must(t, w.other.Lock)
		w.link.Heal()
		next := suite.Later(func() int64 { return use(t, w.m) })
		time.Sleep(2 * time.Second)
		require.Empty(t, next, "two holders")
		suite.Unlock(t, theirs)
		require.Greater(t, suite.Wait(t, next), theirs.Token())
	})
}

// Trust runs out after the node was looked at, and before it is lent (as in a process that is
// paused). While the session is confirmed, the connection breaks, and so does another client the
// node.
func TestNodeThatWasBrokenWhileTheSessionIsConfirmedIsNotHeld(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		const delay = 50 * time.Millisecond
		gate := &suite.Gate{Op: recipestest.OpGetData}
		c := w.link.Client(t, gate.Option(w.link))
		t.Cleanup(func() { c.Close() })
		m := lock.New(c, w.path, lock.WithLinger(time.Hour))

		gate.Shut()
		use(t, m)
		next := suite.Later(func() *lock.Lease { return suite.Must(t, m.Lock) })
		time.Sleep(20 * time.Second)
		w.link.Delay(delay)
		gate.Open()
		time.Sleep(3 * delay) // the node was read
		synctest.Wait()
		require.Empty(t, next)

		w.link.Cut()
		require.NoError(t, w.other.Break(t.Context(), w.node(t)))
		theirs := suite.Must(t, w.other.Lock)
		w.link.Heal()
		require.ErrorIs(t, suite.Wait(t, next).Err(), protocol.ErrNodeDeleted)
		suite.Unlock(t, theirs)
		use(t, m)
	})
}

// A contender comes while a caller waits until its session is confirmed. The caller gives up, or it
// has waited for so long that it must go to the line.
func TestCallerThatWaitsForItsSessionLeavesTheNodeToAContender(t *testing.T) {
	for delay, patience := range map[time.Duration]time.Duration{20 * time.Millisecond: 15 * time.Millisecond, 100 * time.Millisecond: time.Hour} {
		serialLinger(t, time.Hour, func(t *testing.T, w *world) {
			use(t, w.m)
			time.Sleep(30 * time.Second) // the session has to be confirmed
			w.link.Delay(delay)
			theirs := suite.Later(func() int64 { return use(t, w.other) }) // m's client knows it after three delays
			time.Sleep(5 * delay / 2)
			began := time.Now()
			waits := suite.Later(func() *lock.Lease { l, _ := w.m.Lock(suite.Within(t, patience)); return l })
			granted := suite.Wait(t, theirs)
			require.Less(t, time.Since(began), 5*delay)
			l := suite.Wait(t, waits)
			if patience < delay {
				require.Nil(t, l)
			} else {
				require.Greater(t, l.Token(), granted)
				suite.Unlock(t, l)
			}
		})
	}
}

// A node may outlast any number of leases, which must leave nothing with it. (The law "at rest"
// holds for leases without Revoked.)
func TestLeasesLeaveNothing(t *testing.T) { //nolint:paralleltest // it counts goroutines and bytes
	serialLinger(t, 24*time.Hour, func(t *testing.T, w *world) {
		after := func(leases int) (bytes, goroutines int) {
			for range leases {
				l := suite.Must(t, w.m.Lock)
				l.Revoked()
				time.Sleep(25 * time.Millisecond) // it is watched for itself
				suite.Unlock(t, l)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int(m.HeapAlloc), runtime.NumGoroutine()
		}
		bytes, goroutines := after(200)
		moreBytes, moreGoroutines := after(1000)
		require.Less(t, moreBytes-bytes, 1000*400)
		require.Less(t, moreGoroutines-goroutines, 10)
	})
}

// Another library tries: it creates a node, lists the line, and deletes the node if it is not
// first.
func (w *world) try(t *testing.T, conn *zk.Conn, thinks time.Duration) (got bool) {
	t.Helper()
	node := suite.Got(conn.CreateProtectedEphemeralSequential(w.path+"/lock-", nil, zk.WorldACL(zk.PermAll)))(t)
	line := suite.ReadAt(t, conn.Children, w.path)
	first := node
	for _, n := range line {
		if n[len(n)-10:] < first[len(first)-10:] {
			first = n
		}
	}
	time.Sleep(thinks)
	require.NoError(t, conn.Delete(node, -1))
	return first == node
}

func TestThirdTryOfAnotherLibrarySucceeds(t *testing.T) {
	const delay = 2 * time.Millisecond
	for name, test := range map[string]struct {
		callers int
		thinks  time.Duration
	}{
		"used all the time, gone before the listing": {4, 0},
		"used all the time, gone before it was read": {4, 3 * delay},
		"used all the time, gone before our node":    {4, 10 * delay},
		"used now and then, gone before the listing": {1, 0},
		"used now and then, gone before our node":    {1, 3 * delay},
	} {
		t.Run(name, func(t *testing.T) {
			linger(t, time.Second, func(t *testing.T, w *world) {
				w.link.Delay(delay)
				require.NoError(t, w.m.Do(t.Context(), func(_ context.Context, l *lock.Lease) error {
					_, err := l.Multi(t.Context(), l.Check())
					return err
				}))
				defer w.busy(t, test.callers, 3*time.Millisecond, time.Duration(5/test.callers)*time.Millisecond)()
				conn := w.srv.Conn(t)
				for range 5 {
					time.Sleep(time.Second)
					tries := 1
					for !w.try(t, conn, test.thinks) {
						time.Sleep(time.Second)
						tries++
						require.LessOrEqual(t, tries, 3)
					}
				}
			})
		})
	}
}

// What a lease writes with Multi leaves a node in the line for as long as the lease is held.
func TestReceiptsAreNoTries(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		token := use(t, w.m)
		w.link.Delay(time.Millisecond)
		for range 200 {
			l := suite.Must(t, w.m.Lock)
			require.Equal(t, token, l.Token())
			suite.Got(l.Multi(t.Context(), &zk.CheckVersionRequest{Path: w.path, Version: -1}))(t)
			suite.Unlock(t, l)
		}
	})
}

// A waiter of another library is no reason to stand back, also if an operator has asked for its
// lock, or if it has gone again before m's client could look.
func TestWaitersOfAnotherLibraryCostNoTime(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		theirs := zk.NewLock(w.srv.Conn(t), w.path, zk.WorldACL(zk.PermAll))
		w.link.Delay(10 * time.Millisecond)
		for _, hold := range []time.Duration{100 * time.Millisecond, time.Millisecond} {
			for i := range 10 {
				began := time.Now()
				l := suite.Must(t, w.m.Lock)
				granted := suite.Later(theirs.Lock)
				if i%2 == 1 {
					waiter := suite.Await(t, 2, w.other.Contenders)[1]
					time.Sleep(50 * time.Millisecond) // m's client watches it
					require.NoError(t, w.other.Revoke(t.Context(), waiter.Node))
					time.Sleep(50 * time.Millisecond)
				}
				suite.Unlock(t, l)
				require.NoError(t, suite.Wait(t, granted))
				time.Sleep(hold)
				require.NoError(t, theirs.Unlock())
				require.Less(t, time.Since(began)-hold, 400*time.Millisecond, hold)
			}
		}
	})
}

// Of the nodes of a client a limited number stays, also if others have a greater limit. One that is
// in use goes after its lease.
func TestNodesThatWereNotUsedForLongestGoFirst(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		var all []*lock.Mutex
		for i := range 5 {
			opts := []lock.Option{lock.WithLinger(time.Hour), lock.WithLingerLimit(3)}
			all = append(all, lock.New(w.c, fmt.Sprint(w.path, i), opts[:1+i/4]...))
			use(t, all[i])
		}
		there := func(want ...int) {
			t.Helper()
			for i, m := range all {
				require.Equal(t, want[i], inLine(t, m), i)
			}
		}
		there(0, 0, 1, 1, 1)
		held := suite.Must(t, all[3].Lock)
		use(t, all[2])
		use(t, all[0]) // it has the default limit
		there(1, 0, 1, 1, 1)
		lost := suite.Must(t, all[4].Lock)
		require.NoError(t, all[4].Break(t.Context(), lost.Node()))
		suite.Wait(t, lost.Done())
		use(t, all[4])
		there(1, 0, 1, 1, 1)
		suite.Unlock(t, held)
		there(1, 0, 1, 0, 1)
		for i := range 600 { // more bytes than a session has room for
			use(t, lock.New(w.c, fmt.Sprintf("%s%03000d", w.path, i), lock.WithLinger(time.Hour)))
		}
	})
}
