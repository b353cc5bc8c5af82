package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

func TestSharedReadingAndWritingAreFairLocks(t *testing.T) {
	suite.Conform(t, ways(rwlock.WithLocalSharing()), rwlock.ErrLocked)
}

func eachSharing(t *testing.T, test func(t *testing.T, srv *recipestest.Server, link *recipestest.Link, m, other *rwlock.RWMutex)) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/shared"
		test(t, srv, link, rwlock.New(link.Client(t), path, rwlock.WithLocalSharing()), rwlock.New(srv.Client(t), path))
	})
}

// bubbleSharing is for tests in which readers must come while a node may be joined.
func bubbleSharing(t *testing.T, test func(t *testing.T, link *recipestest.Link, m, other *rwlock.RWMutex)) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/shared"
		test(t, link, rwlock.New(link.Client(t), path, rwlock.WithLocalSharing()), rwlock.New(srv.Client(t), path))
	})
}

// readAll takes n read leases, one after the other.
func readAll(t *testing.T, m *rwlock.RWMutex, n int) (leases []*rwlock.Lease) {
	t.Helper()
	for range n {
		leases = append(leases, must(t, read, m))
	}
	return leases
}

// waiting makes n readers wait, and returns what becomes of them.
func waiting(ctx context.Context, m *rwlock.RWMutex, n int) (results []<-chan result) {
	for range n {
		results = append(results, suite.Later(func() result {
			l, err := m.RLock(ctx)
			return result{l, err}
		}))
	}
	return results
}

type result struct {
	lease *rwlock.Lease
	err   error
}

func TestReadersOfAProcessShareOneNode(t *testing.T) {
	bubbleSharing(t, func(t *testing.T, link *recipestest.Link, m, other *rwlock.RWMutex) {
		first := must(t, read, m)
		before := link.Count(recipestest.OpAny)
		leases := readAll(t, m, 10)
		tried, err := m.TryRLock(t.Context())
		require.NoError(t, err)
		leases = append(leases, tried)
		for _, l := range leases {
			require.Equal(t, first.Token(), l.Token())
			require.Equal(t, first.Node(), l.Node())
			require.False(t, l.Exclusive())
		}
		require.Equal(t, before, link.Count(recipestest.OpAny))
		awaitContenders(t, other, 1)

		// Each has its own end.
		unlock(t, first)
		unlock(t, first)
		require.ErrorIs(t, first.Err(), protocol.ErrReleased)
		<-first.Done()
		for _, l := range leases {
			require.NoError(t, l.Err())
		}
		_, err = other.TryLock(t.Context())
		require.ErrorIs(t, err, rwlock.ErrLocked)
		unlock(t, leases...)
		require.Equal(t, before+1, link.Count(recipestest.OpAny), "the node's deletion")
		unlock(t, must(t, write, other))
	})
}

func TestReaderThatGivesUpLeavesTheNodeToTheOthers(t *testing.T) {
	bubbleSharing(t, func(t *testing.T, _ *recipestest.Link, m, other *rwlock.RWMutex) {
		held := must(t, write, other)
		ctx, giveUp := context.WithCancel(t.Context())
		quitters := waiting(ctx, m, 3) // one of them has made the node
		node := awaitContenders(t, other, 2)[1].Node
		readers := waiting(t.Context(), m, 3)
		synctest.Wait()
		giveUp()
		for _, q := range quitters {
			require.ErrorIs(t, suite.Wait(t, q).err, context.Canceled)
		}

		ctx, giveUp = context.WithCancel(t.Context())
		more := waiting(ctx, m, 3)
		synctest.Wait()
		unlock(t, held)
		for _, r := range readers {
			r := suite.Wait(t, r)
			require.NoError(t, r.err)
			require.NoError(t, r.lease.Err())
			defer unlock(t, r.lease)
		}
		require.Equal(t, node, awaitContenders(t, other, 1)[0].Node)
		giveUp()
		for _, m := range more {
			r := suite.Wait(t, m)
			require.NoError(t, r.err)
			unlock(t, r.lease)
		}
	})
}

func TestNodeOfReadersThatHaveAllGivenUpIsDeleted(t *testing.T) {
	eachSharing(t, func(t *testing.T, _ *recipestest.Server, _ *recipestest.Link, m, other *rwlock.RWMutex) {
		held := must(t, write, other)
		ctx, giveUp := context.WithCancel(t.Context())
		quitters := waiting(ctx, m, 5)
		awaitContenders(t, other, 2)
		giveUp()
		for _, q := range quitters {
			require.ErrorIs(t, suite.Wait(t, q).err, context.Canceled)
		}
		awaitContenders(t, other, 1)
		unlock(t, held)
		unlock(t, must(t, write, m))
	})
}

// The wait for a node ends with the last of its readers. The next one does not join that wait.
func TestReaderThatComesAsAllOthersGiveUpWaits(t *testing.T) {
	bubbleSharing(t, func(t *testing.T, _ *recipestest.Link, m, other *rwlock.RWMutex) {
		held := must(t, write, other)
		for range 50 {
			ctx, giveUp := context.WithCancel(t.Context())
			quitter := waiting(ctx, m, 1)[0]
			synctest.Wait()
			giveUp()
			require.ErrorIs(t, (<-quitter).err, context.Canceled)
			ctx, giveUp = context.WithTimeout(t.Context(), time.Second)
			_, err := m.RLock(ctx)
			giveUp()
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		unlock(t, held)
	})
}

// Readers keep coming, and each holds the lock until the next one has it.
func TestWriterElsewhereGetsInWhileReadersKeepComing(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/chain"
		m := rwlock.New(srv.Client(t), path, rwlock.WithLocalSharing())
		other := rwlock.New(srv.Client(t), path)
		for name, pause := range map[string]time.Duration{"joins": 0, "time": 10 * time.Millisecond} {
			held := must(t, read, m)
			entered := suite.Later(func() error {
				l, err := other.Lock(t.Context())
				if err != nil {
					return err
				}
				return l.Unlock(t.Context())
			})
			awaitContenders(t, other, 2)

			bound := map[string]int{"joins": 256, "time": 10}[name]
			joined := 0
			for ; ; joined++ {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				next, err := m.RLock(ctx)
				cancel()
				if errors.Is(err, context.DeadlineExceeded) {
					break
				}
				require.NoError(t, err)
				unlock(t, held)
				held = next
				time.Sleep(pause)
				require.LessOrEqual(t, joined, bound, name)
			}
			require.GreaterOrEqual(t, joined, bound/2, name)
			unlock(t, held)
			require.NoError(t, suite.Wait(t, entered))
		}
	})
}

func TestReadersShareOnAfterATryLock(t *testing.T) {
	bubbleSharing(t, func(t *testing.T, _ *recipestest.Link, m, _ *rwlock.RWMutex) {
		first := must(t, read, m)
		_, err := m.TryLock(t.Context())
		require.ErrorIs(t, err, rwlock.ErrLocked)
		second := must(t, read, m)
		require.Equal(t, first.Node(), second.Node())
		unlock(t, first, second)
	})
}

func TestReaderLinesUpBehindAWriterOfItsProcess(t *testing.T) {
	bubbleSharing(t, func(t *testing.T, _ *recipestest.Link, m, other *rwlock.RWMutex) {
		reading := must(t, read, m)
		var wait group
		entered := enter(t, &wait, write, m, other, 2)
		behind := waiting(t.Context(), m, 4)
		synctest.Wait()
		line := awaitContenders(t, other, 3)
		require.True(t, line[1].Exclusive)
		_, err := m.TryRLock(t.Context())
		require.ErrorIs(t, err, rwlock.ErrLocked)
		unlock(t, reading)
		writing := suite.Wait(t, entered)
		for _, b := range behind {
			require.Empty(t, b)
		}
		reader, err := writing.Downgrade(t.Context())
		require.NoError(t, err)
		for _, b := range behind {
			r := suite.Wait(t, b)
			require.NoError(t, r.err)
			require.Equal(t, line[2].Token, r.lease.Token())
			defer unlock(t, r.lease)
		}
		unlock(t, reader)
		require.NoError(t, wait.Wait())
	})
}

func TestReadersThatShareAreLostTogether(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, srv *recipestest.Server, m *rwlock.RWMutex, c rwlock.Contender){
		"node": func(t *testing.T, _ *recipestest.Server, m *rwlock.RWMutex, c rwlock.Contender) {
			require.NoError(t, m.Break(t.Context(), c.Node))
		},
		"session": func(_ *testing.T, srv *recipestest.Server, _ *rwlock.RWMutex, c rwlock.Contender) {
			srv.ExpireSession(c.Session)
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				path := srv.Root(t) + "/lost"
				m := rwlock.New(srv.Client(t), path, rwlock.WithLocalSharing())
				other := rwlock.New(srv.Client(t), path)
				leases := readAll(t, m, 5)
				unlock(t, leases[0])
				lose(t, srv, other, awaitContenders(t, other, 1)[0])
				for _, l := range leases[1:] {
					suite.Wait(t, l.Done())
					require.ErrorIs(t, l.Err(), protocol.ErrLost)
					require.ErrorIs(t, l.Unlock(t.Context()), protocol.ErrLost)
				}
				again := must(t, read, m)
				require.NotEqual(t, leases[0].Node(), again.Node())
				unlock(t, again)
				unlock(t, must(t, write, other))
			})
		})
	}
}

func TestReaderDoesNotJoinANodeThatAnotherOneHasLost(t *testing.T) {
	bubbleSharing(t, func(t *testing.T, _ *recipestest.Link, m, other *rwlock.RWMutex) {
		for range 100 { // which of them learns of it first differs
			leases := readAll(t, m, 5)
			time.Sleep(50 * time.Millisecond)
			require.NoError(t, other.Break(t.Context(), leases[0].Node()))
			suite.Wait(t, leases[0].Done())
			again := must(t, read, m)
			require.NotEqual(t, leases[0].Node(), again.Node())
			unlock(t, again)
		}
	})
}

// A node is watched only after 20 milliseconds.
func TestReaderDoesNotJoinANodeThatItsProcessHasBroken(t *testing.T) {
	bubbleSharing(t, func(t *testing.T, _ *recipestest.Link, m, other *rwlock.RWMutex) {
		first := must(t, read, m)
		require.NoError(t, m.Break(t.Context(), first.Node()))
		writer := must(t, write, other)
		reader := waiting(t.Context(), m, 1)[0]
		synctest.Wait()
		require.Empty(t, reader, "reads while another one writes")
		unlock(t, writer)
		l := (<-reader).lease
		require.NotEqual(t, first.Node(), l.Node())
		unlock(t, l)
	})
}

// A lease is watched for itself only after 20 milliseconds.
func TestYoungLeaseHearsOfTheLossFromTheOthers(t *testing.T) {
	bubbleSharing(t, func(t *testing.T, _ *recipestest.Link, m, other *rwlock.RWMutex) {
		must(t, read, m)
		time.Sleep(50 * time.Millisecond)
		young := must(t, read, m)
		broken := time.Now()
		require.NoError(t, other.Break(t.Context(), young.Node()))
		suite.Wait(t, young.Done())
		require.ErrorIs(t, young.Err(), protocol.ErrLost)
		require.Less(t, time.Since(broken), 20*time.Millisecond)
	})
}

func TestReadersWaitOnInTheNextSession(t *testing.T) {
	eachSharing(t, func(t *testing.T, srv *recipestest.Server, _ *recipestest.Link, m, other *rwlock.RWMutex) {
		held := must(t, write, other)
		readers := waiting(t.Context(), m, 5)
		line := awaitContenders(t, other, 2)
		srv.ExpireSession(line[1].Session)
		suite.Soon(t, func() bool {
			now, err := other.Contenders(t.Context())
			return err == nil && len(now) == 2 && now[1].Session != line[1].Session
		}, "a node of the next session")
		broken := awaitContenders(t, other, 2)[1]
		require.NoError(t, other.Break(t.Context(), broken.Node), "and a node is replaced, too")
		suite.Soon(t, func() bool {
			now, err := other.Contenders(t.Context())
			return err == nil && len(now) == 2 && now[1].Node != broken.Node
		}, "another node")
		unlock(t, held)
		for _, r := range readers {
			r := suite.Wait(t, r)
			require.NoError(t, r.err)
			defer unlock(t, r.lease)
		}
	})
}

func TestSharedReadersOfAClosedClientFail(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/closed"
		m, other := rwlock.New(c, path, rwlock.WithLocalSharing()), rwlock.New(srv.Client(t), path)
		held := must(t, write, other)
		readers := waiting(t.Context(), m, 5)
		awaitContenders(t, other, 2)
		suite.Close(t, c)
		for _, r := range readers {
			require.ErrorIs(t, suite.Wait(t, r).err, protocol.ErrClosed)
		}
		_, err := m.RLock(t.Context())
		require.ErrorIs(t, err, protocol.ErrClosed)
		unlock(t, held)
	})
}

func TestPanicGivesTheSharedLockBack(t *testing.T) {
	eachSharing(t, func(t *testing.T, _ *recipestest.Server, _ *recipestest.Link, m, other *rwlock.RWMutex) {
		reading := must(t, read, m)
		require.PanicsWithValue(t, "oops", func() {
			m.RDo(t.Context(), func(context.Context, *rwlock.Lease) error { panic("oops") })
		})
		require.NoError(t, reading.Err())
		unlock(t, reading)
		unlock(t, must(t, write, other))
	})
}

func TestEachSharedLeaseIsReported(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	events := make(observer, 1000)
	m := rwlock.New(srv.Client(t).With(protocol.WithObserver(events)), srv.Root(t)+"/events", rwlock.WithLocalSharing())
	unlock(t, readAll(t, m, 3)...)
	unlock(t, must(t, write, m))
	const acquired, released = protocol.EventAcquired, protocol.EventReleased
	const waiting, reading, writing = protocol.EventWaiting, "read", "write"
	type reported struct {
		kind protocol.EventKind
		mode string
	}
	var got []reported
	waits := 0
	for waits < 4 || len(got) < 8 {
		e := suite.Wait(t, events)
		require.Equal(t, "rwlock", e.Recipe)
		if e.Kind == waiting { // which may come between those of the other readers
			waits++
			continue
		}
		require.NotZero(t, e.Token)
		got = append(got, reported{e.Kind, e.Mode})
	}
	require.Equal(t, []reported{
		{acquired, reading}, {acquired, reading}, {acquired, reading},
		{released, reading}, {released, reading}, {released, reading},
		{acquired, writing}, {released, writing},
	}, got)
	require.Empty(t, events, "the shared node reports nothing")
}

type observer chan protocol.Event

func (o observer) Observe(e protocol.Event) { o <- e }

// Goroutines of two processes read and write. Readers and writers exclude each other.
func TestManyGoroutinesShareAndExclude(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/many"
		var readers, writers atomic.Int32
		var wait group
		for range 2 {
			m := rwlock.New(srv.Client(t), path, rwlock.WithLocalSharing())
			for i := range 8 {
				wait.Go(func() error {
					for n := range 20 {
						do, mine, max := m.RDo, &readers, int32(16)
						if (i+n)%10 == 0 {
							do, mine, max = m.Do, &writers, 1
						}
						err := do(t.Context(), func(context.Context, *rwlock.Lease) error {
							defer mine.Add(-1)
							if in := mine.Add(1); in > max || readers.Load() > 0 && writers.Load() > 0 {
								return fmt.Errorf("%d readers and %d writers", readers.Load(), writers.Load())
							}
							return nil
						})
						if err != nil {
							return err
						}
					}
					return nil
				})
			}
		}
		require.NoError(t, wait.Wait())
	})
}
