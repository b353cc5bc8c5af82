package lock_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
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

// A world has a lock m that lingers, and a plain lock of another client.
type world struct {
	srv      *recipestest.Server
	link     *recipestest.Link // m's
	path     string
	m, other *lock.Mutex
}

func linger(t *testing.T, d time.Duration, test func(t *testing.T, w *world)) {
	t.Parallel()
	serialLinger(t, d, test)
}

func serialLinger(t *testing.T, d time.Duration, test func(t *testing.T, w *world)) {
	recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		w := &world{srv: srv, link: srv.Link(t), path: srv.Root(t) + "/linger"}
		c := w.link.Client(t)
		t.Cleanup(func() { c.Close() }) // or the node would be left
		w.m, w.other = lock.New(c, w.path, lock.WithLinger(d)), lock.New(srv.Client(t), w.path)
		test(t, w)
	})
}

// inLine returns how many contenders there are.
func inLine(t *testing.T, m *lock.Mutex) int {
	t.Helper()
	synctest.Wait()
	line, err := m.Contenders(t.Context())
	require.NoError(t, err)
	return len(line)
}

// cut breaks m's connection while its node is unused.
func (w *world) cut(t *testing.T) (token int64, node string) {
	token, node = use(t, w.m), suite.Await(t, 1, w.other.Contenders)[0].Node
	synctest.Wait()
	w.link.Cut()
	synctest.Wait()
	return token, node
}

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

func TestLockThatLingersIsTakenWithoutARequest(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		token := use(t, w.m)
		synctest.Wait()
		before := w.link.Count(recipestest.OpAny)
		for range 1000 {
			require.Equal(t, token, use(t, w.m))
		}
		l := suite.Must(t, w.m.TryLock)
		_, err := w.m.TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrLocked)
		require.Equal(t, before, w.link.Count(recipestest.OpAny))

		waits := suite.Later(func() int64 { return use(t, w.other) })
		line := suite.Await(t, 2, w.other.Contenders)
		require.True(t, line[0].Node == l.Node() && line[0].Lingers && line[0].Holds)
		require.False(t, line[1].Lingers || line[1].Holds)
		suite.Unlock(t, l)
		suite.Wait(t, waits)

		for _, opt := range []lock.Option{lock.WithLinger(0), lock.WithLingerLimit(0)} {
			_, err := lock.New(w.srv.Client(t), w.path, opt).Lock(t.Context())
			require.ErrorContains(t, err, "linger")
		}
		_, err = lock.NewSimple(w.srv.Client(t), w.path, lock.WithLinger(1)).Lock(t.Context())
		require.ErrorContains(t, err, "linger")
	})
}

func TestLockIsGivenBackWhenItWasNotUsedForAWhile(t *testing.T) {
	linger(t, time.Second, func(t *testing.T, w *world) {
		use(t, w.m)
		time.Sleep(900 * time.Millisecond)
		token := use(t, w.m)
		l := suite.Must(t, w.m.Lock)
		require.Equal(t, token, l.Token())
		time.Sleep(5 * time.Second) // in use
		suite.Unlock(t, l)
		time.Sleep(999 * time.Millisecond)
		suite.Await(t, 1, w.other.Contenders)
		time.Sleep(2 * time.Millisecond)
		require.Zero(t, inLine(t, w.other))
		require.Greater(t, use(t, w.m), token)
	})
}

func TestUnusedLockGoesToAContenderAtOnce(t *testing.T) {
	linger(t, time.Minute, func(t *testing.T, w *world) {
		for range 20 { // also before the line is watched
			token, began := use(t, w.m), time.Now()
			require.Greater(t, use(t, w.other), token)
			require.Less(t, time.Since(began), 10*time.Millisecond)
		}
	})
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
		_, err := w.other.TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrLocked)
		require.InDelta(t, 250*time.Millisecond, time.Since(began), float64(10*time.Millisecond))
		require.Equal(t, 1, inLine(t, w.other))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err = w.other.TryLock(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, inLine(t, w.other))

		// A line with others in it is busy.
		waits := suite.Later(func() int64 { return use(t, w.other) })
		suite.Await(t, 2, w.other.Contenders)
		began = time.Now()
		_, err = w.other.TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrLocked)
		require.Less(t, time.Since(began), 10*time.Millisecond)
		suite.Unlock(t, l)
		suite.Wait(t, waits)
	})
}

// The request may come before the node is watched, and while it is not used.
func TestRevocationEndsTheKeeping(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		for range 100 {
			l := suite.Must(t, w.m.Lock)
			require.NoError(t, w.other.Revoke(t.Context(), l.Node()))
			suite.Wait(t, l.Revoked())
			suite.Unlock(t, l)
			require.Greater(t, use(t, w.m), l.Token())
			require.NoError(t, w.other.Revoke(t.Context(), suite.Await(t, 1, w.other.Contenders)[0].Node))
			require.Zero(t, inLine(t, w.other))
		}
	})
}

// No lease lives for long enough to be watched for itself.
func TestNodeThatIsBrokenIsNotLentInShortTurns(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		for range 20 {
			token := use(t, w.m)
			require.Equal(t, token, use(t, w.m))
			require.NoError(t, w.other.Break(t.Context(), suite.Await(t, 1, w.other.Contenders)[0].Node))
			synctest.Wait() // for the event
			require.Greater(t, use(t, w.m), token)
		}
	})
}

// A line that may not be listed for a while keeps nobody from hearing what becomes of the node.
func TestNodeIsWatchedWhateverBecomesOfTheLine(t *testing.T) {
	for name, happens := range map[string]func(*lock.Mutex, context.Context, string) error{
		"broken":  (*lock.Mutex).Break,
		"revoked": (*lock.Mutex).Revoke,
	} {
		t.Run(name, func(t *testing.T) {
			linger(t, time.Hour, func(t *testing.T, w *world) {
				const connectionLoss = -4
				w.link.Fail(recipestest.OpGetChildren, w.path, connectionLoss, 1_000_000)
				token, node := use(t, w.m), suite.Await(t, 1, w.other.Contenders)[0].Node
				synctest.Wait()
				require.Equal(t, token, use(t, w.m))
				require.NoError(t, happens(w.other, t.Context(), node))
				require.Zero(t, inLine(t, w.other))
				w.link.Fail(recipestest.OpGetChildren, w.path, connectionLoss, 0)
				require.Greater(t, use(t, w.m), token)
			})
		})
	}
}

// What happens during a cut ends the keeping afterwards.
func TestWhatHappensDuringACutEndsTheKeeping(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		for name, happens := range map[string]func(node string) error{
			"a contender comes": func(string) error {
				go use(t, w.other)
				return nil
			},
			"the node is broken":  func(node string) error { return w.other.Break(t.Context(), node) },
			"the lock is revoked": func(node string) error { return w.other.Revoke(t.Context(), node) },
		} {
			_, node := w.cut(t)
			require.NoError(t, happens(node))
			time.Sleep(time.Second)
			w.link.Heal()
			time.Sleep(2 * time.Second)
			require.Zero(t, inLine(t, w.other), name)
		}
	})
}

// Nothing is lent without a connection, as another client may have broken the node meanwhile.
func TestCallerInACutWaitsForTheConnection(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		token, _ := w.cut(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := w.m.Lock(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = w.m.TryLock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(5 * time.Second) // of the 10 of the session
		later := suite.Later(func() int64 { return use(t, w.m) })
		time.Sleep(time.Second)
		require.Empty(t, later)
		w.link.Heal()
		require.Equal(t, token, suite.Wait(t, later), "the unused node has cost no session")
	})
}

// Another client has broken the node and holds the lock. The connection is back at a member that has
// not heard of that.
func TestCallerAtAMemberThatLagsGetsNoBrokenNode(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		late := w.srv.Embedded().Follower()
		_, node := w.cut(t)
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

// A caller that gets no lease is no use of the lock, also if the time ends while it waits.
func TestCallerThatGivesUpInACutDoesNotProlongTheKeeping(t *testing.T) {
	for _, patience := range []time.Duration{900 * time.Millisecond, 1100 * time.Millisecond} {
		t.Run(patience.String(), func(t *testing.T) {
			linger(t, time.Second, func(t *testing.T, w *world) {
				w.cut(t)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				_, err := w.m.Lock(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				w.link.Heal()
				time.Sleep(800 * time.Millisecond)
				require.Zero(t, inLine(t, w.other))
			})
		})
	}
}

// A contender comes while a caller waits until its session is confirmed.
func TestCallerThatGivesUpLeavesTheNodeToAContender(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		use(t, w.m)
		time.Sleep(30 * time.Second) // the session has to be confirmed
		const delay = 20 * time.Millisecond
		w.link.Delay(delay)
		theirs := suite.Later(func() int64 { return use(t, w.other) }) // m's client knows it after three delays
		time.Sleep(2 * delay)
		ctx, cancel := context.WithTimeout(t.Context(), 3*delay/2)
		defer cancel()
		_, err := w.m.Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		began := time.Now()
		suite.Wait(t, theirs)
		require.Less(t, time.Since(began), 2*delay)
	})
}

// A contender comes while a caller waits for the connection. It is a matter of chance which is first.
func TestCallerWhoseTimeIsOverGoesToTheLine(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		token, _ := w.cut(t)
		next := suite.Later(func() int64 { return use(t, w.m) })
		theirs := suite.Later(func() int64 { return use(t, w.other) })
		time.Sleep(time.Second)
		w.link.Heal()
		require.Greater(t, suite.Wait(t, theirs), token)
		suite.Wait(t, next)
	})
}

// A session that nothing needs is not kept fresh for a node that nobody uses.
func TestLockThatLingersCostsNextToNothing(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		token := use(t, w.m)
		synctest.Wait()
		before := w.link.Count(recipestest.OpAny)
		time.Sleep(30*time.Minute + 30*time.Second)
		after := w.link.Count(recipestest.OpAny)
		require.LessOrEqual(t, after-before, 2*30, "the line and the node are looked at once a minute")
		require.Equal(t, token, use(t, w.m))
		require.Equal(t, after+1, w.link.Count(recipestest.OpAny), "the session is confirmed")
	})
}

// A deafConn loses the events that come while deaf is set.
type deafConn struct {
	net.Conn
	deaf   *atomic.Bool
	ready  []byte
	shaken bool // the handshake was read
}

func (c *deafConn) Read(p []byte) (int, error) {
	for len(c.ready) == 0 {
		frame := make([]byte, 4)
		if _, err := io.ReadFull(c.Conn, frame); err != nil {
			return 0, err
		}
		frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame))...)
		if _, err := io.ReadFull(c.Conn, frame[4:]); err != nil {
			return 0, err
		}
		if event := c.shaken && int32(binary.BigEndian.Uint32(frame[4:])) == -1; !event || !c.deaf.Load() {
			c.ready = frame
		}
		c.shaken = true
	}
	n := copy(p, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

// A server that loses an event keeps the other contender waiting for a minute.
func TestContenderWhoseEventIsLostWaitsForAMinuteAtMost(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		var deaf atomic.Bool
		m := lock.New(w.srv.Client(t, protocol.WithDialer(
			func(network, address string, timeout time.Duration) (net.Conn, error) {
				conn, err := w.srv.Dial(network, address, timeout)
				return &deafConn{Conn: conn, deaf: &deaf}, err
			})), w.path, lock.WithLinger(time.Hour))
		use(t, m)
		synctest.Wait()
		deaf.Store(true)
		time.Sleep(20 * time.Second)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		require.NoError(t, w.other.Do(ctx, func(context.Context, *lock.Lease) error { return nil }))
		require.InDelta(t, 40*time.Second, time.Since(began), float64(time.Second))
	})
}

// A node may outlast any number of leases, which must leave nothing with it, and each node that goes
// to a contender takes all with it.
func TestLeasesAndNodesLeaveNothing(t *testing.T) { //nolint:paralleltest // it counts goroutines and bytes
	serialLinger(t, time.Hour, func(t *testing.T, w *world) {
		for name, turn := range map[string]func(){
			"lease": func() {
				l := suite.Must(t, w.m.Lock)
				l.Revoked()
				time.Sleep(25 * time.Millisecond) // it is watched for itself
				suite.Unlock(t, l)
			},
			"node": func() { use(t, w.m); use(t, w.other) },
		} {
			memory(t, 200, turn)
			bytes, goroutines := memory(t, 1000, turn)
			require.Less(t, bytes, 400, name)
			require.Less(t, goroutines, 10, name)
		}
	})
}

// memory returns how many bytes each of n turns has left, and how many goroutines all of them.
func memory(t *testing.T, n int, turn func()) (bytes, goroutines int) {
	var before, after runtime.MemStats
	synctest.Wait()
	runtime.GC()
	runtime.ReadMemStats(&before)
	goroutines = runtime.NumGoroutine()
	for range n {
		turn()
	}
	time.Sleep(time.Second)
	synctest.Wait()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return (int(after.HeapAlloc) - int(before.HeapAlloc)) / n, runtime.NumGoroutine() - goroutines
}

// An unused lock takes no goroutine of its own, and little memory.
func TestManyLocksLingerInLittleMemory(t *testing.T) { //nolint:paralleltest // it counts goroutines and bytes
	serialLinger(t, 24*time.Hour, func(t *testing.T, w *world) {
		c, all := w.link.Client(t), []*lock.Mutex(nil)
		t.Cleanup(func() { c.Close() })
		bytes, goroutines := memory(t, 1000, func() {
			all = append(all, lock.New(c, fmt.Sprint(w.path, len(all)), lock.WithLinger(24*time.Hour)))
			use(t, all[len(all)-1])
		})
		require.Less(t, goroutines, 10)
		require.Less(t, bytes, 7000, "with its server, which takes most")
		runtime.KeepAlive(all)
	})
}

// Another library tries: it creates a node, lists the line, and deletes the node if it is not first.
func (w *world) try(t *testing.T, conn *zk.Conn, thinks time.Duration) (got bool) {
	t.Helper()
	node, err := conn.CreateProtectedEphemeralSequential(w.path+"/lock-", nil, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	line, _, err := conn.Children(w.path)
	require.NoError(t, err)
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

// A try that is over before m's client has listed the line leaves m its node. Two leave the lock alone,
// and are forgotten then.
func TestTriesThatNoListingShowsCount(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		conn := w.srv.Conn(t)
		for range 3 {
			token := use(t, w.m)
			synctest.Wait()
			w.link.Delay(10 * time.Millisecond)
			require.False(t, w.try(t, conn, 0))
			time.Sleep(900 * time.Millisecond)
			require.Equal(t, token, use(t, w.m))
			require.False(t, w.try(t, conn, 0))
			time.Sleep(900 * time.Millisecond)
			_, err := w.m.TryLock(t.Context())
			require.ErrorIs(t, err, lock.ErrLocked)
			require.True(t, w.try(t, conn, 0))
			w.link.Delay(0)
			began := time.Now()
			use(t, w.m)
			require.Less(t, time.Since(began), 400*time.Millisecond)
		}
	})
}

// What a lease writes with Multi leaves a node in the line for as long as the lease is held.
func TestReceiptsAreNoTries(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		token := use(t, w.m)
		for range 200 {
			l := suite.Must(t, w.m.Lock)
			require.Equal(t, token, l.Token())
			_, err := l.Multi(t.Context(), &zk.CheckVersionRequest{Path: w.path, Version: -1})
			require.NoError(t, err)
			suite.Unlock(t, l)
		}
	})
}

// A waiter of another library is no reason to stand back, also if it has gone again before m's client
// could look.
func TestWaitersOfAnotherLibraryCostNoTime(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		theirs := zk.NewLock(w.srv.Conn(t), w.path, zk.WorldACL(zk.PermAll))
		w.link.Delay(10 * time.Millisecond)
		for _, hold := range []time.Duration{100 * time.Millisecond, time.Millisecond} {
			for range 10 {
				began := time.Now()
				use(t, w.m)
				require.NoError(t, theirs.Lock())
				time.Sleep(hold)
				require.NoError(t, theirs.Unlock())
				require.Less(t, time.Since(began)-hold, 400*time.Millisecond, hold)
			}
		}
	})
}

// Of the nodes of a client that linger unused, a limited number stays, also if others have a greater
// limit.
func TestNodesThatWereNotUsedForLongestGoFirst(t *testing.T) {
	linger(t, time.Hour, func(t *testing.T, w *world) {
		c, all := w.link.Client(t), []*lock.Mutex(nil)
		t.Cleanup(func() { c.Close() })
		for i := range 10 {
			opts := []lock.Option{lock.WithLinger(time.Hour), lock.WithLingerLimit(3)}
			all = append(all, lock.New(c, fmt.Sprint(w.path, i), opts[:1+i/9]...))
			use(t, all[i])
		}
		there := func(of ...int) {
			t.Helper()
			for i, m := range all {
				want := 0
				for _, n := range of {
					if n == i {
						want = 1
					}
				}
				require.Equal(t, want, inLine(t, m), i)
			}
		}
		there(7, 8, 9)
		held := suite.Must(t, all[7].Lock) // it is lent, and does not count
		use(t, all[0])
		use(t, all[1])
		use(t, all[8])
		use(t, all[9])
		there(1, 7, 8, 9)
		suite.Unlock(t, held)
	})
}
