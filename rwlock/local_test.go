package rwlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

// sharing runs a test with a lock that readers of a process share, and with one of another process.
func sharing(t *testing.T, test func(t *testing.T, link *recipestest.Link, m, other *rwlock.RWMutex)) {
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

// waiting makes n readers wait.
func waiting(ctx context.Context, m *rwlock.RWMutex, n int) (leases []<-chan *rwlock.Lease) {
	for range n {
		leases = append(leases, suite.Later(func() *rwlock.Lease { l, _ := m.RLock(ctx); return l }))
	}
	synctest.Wait()
	return leases
}

func TestReadersOfAProcessShareOneNode(t *testing.T) {
	sharing(t, func(t *testing.T, link *recipestest.Link, m, other *rwlock.RWMutex) {
		first := must(t, read, m)
		before := link.Count(recipestest.OpAny)
		leases := append(readAll(t, m, 10), suite.Must(t, m.TryRLock))
		require.Equal(t, before, link.Count(recipestest.OpAny))
		require.ErrorIs(t, suite.Err(m.TryLock(t.Context())), rwlock.ErrLocked)
		leases = append(leases, must(t, read, m))
		before = link.Count(recipestest.OpAny)
		for _, l := range leases {
			require.Equal(t, first.Token(), l.Token())
			require.False(t, l.Exclusive())
		}

		// Each has its own end.
		suite.Unlock(t, first, first)
		require.ErrorIs(t, first.Err(), protocol.ErrReleased)
		<-first.Done()
		for _, l := range leases {
			require.NoError(t, l.Err())
		}
		require.ErrorIs(t, suite.Err(other.TryLock(t.Context())), rwlock.ErrLocked)
		suite.Unlock(t, leases...)
		require.Equal(t, before+1, link.Count(recipestest.OpAny), "the node's deletion")
		suite.Unlock(t, must(t, write, other))
	})
}

// Those that give up are the first ones, who have made the node.
func TestReaderThatGivesUpLeavesTheNodeToTheOthers(t *testing.T) {
	sharing(t, func(t *testing.T, link *recipestest.Link, m, other *rwlock.RWMutex) {
		held := must(t, write, other)
		for range 100 { // after the last one has left, nobody is in line for the next
			ctx, giveUp := context.WithCancel(t.Context())
			quitter := waiting(ctx, m, 1)[0]
			giveUp()
			require.Nil(t, suite.Wait(t, quitter))
			require.ErrorIs(t, suite.Err(m.RLock(suite.Within(t, time.Millisecond))), context.DeadlineExceeded)
		}

		ctx, giveUp := context.WithCancel(t.Context())
		link.Delay(time.Millisecond)
		tries := suite.Later(func() error { _, err := m.TryRLock(t.Context()); return err })
		synctest.Wait()
		quitters := waiting(ctx, m, 3)
		require.ErrorIs(t, suite.Wait(t, tries), rwlock.ErrLocked, "nobody joins a try")
		node := suite.Await(t, 2, other.Contenders)[1].Node
		readers := waiting(t.Context(), m, 3)
		giveUp()
		for _, q := range quitters {
			require.Nil(t, suite.Wait(t, q))
		}
		suite.Unlock(t, held)
		for _, r := range readers {
			l := granted(t, r)
			require.Equal(t, node, l.Node())
			defer suite.Unlock(t, l)
		}
	})
}

// Readers keep coming, and each holds the lock until the next one has it.
func TestWriterElsewhereGetsInWhileReadersKeepComing(t *testing.T) {
	sharing(t, func(t *testing.T, _ *recipestest.Link, m, other *rwlock.RWMutex) {
		for bound, pause := range map[int]time.Duration{256: 0, 10: 10 * time.Millisecond} {
			held, joined := must(t, read, m), 0
			writer := enter(t, write, other, other, 2)
			for ; ; joined++ {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				next, err := m.RLock(ctx)
				cancel()
				if errors.Is(err, context.DeadlineExceeded) {
					break
				}
				require.NoError(t, err)
				suite.Unlock(t, held)
				held = next
				time.Sleep(pause)
				require.Less(t, joined, bound)
			}
			require.Equal(t, bound, joined)
			suite.Unlock(t, held)
			suite.Unlock(t, granted(t, writer))
		}
	})
}

func TestReaderLinesUpBehindAWriterOfItsProcess(t *testing.T) {
	sharing(t, func(t *testing.T, _ *recipestest.Link, m, other *rwlock.RWMutex) {
		reading := must(t, read, m)
		writer := enter(t, write, m, other, 2)
		behind := waiting(t.Context(), m, 4)
		line := suite.Await(t, 3, other.Contenders)
		require.True(t, line[1].Exclusive)
		require.ErrorIs(t, suite.Err(m.TryRLock(t.Context())), rwlock.ErrLocked)
		suite.Unlock(t, reading)
		writing := granted(t, writer)
		for _, b := range behind {
			require.Empty(t, b)
		}
		reader := suite.Must(t, writing.Downgrade)
		for _, b := range behind {
			l := granted(t, b)
			require.Equal(t, line[2].Token, l.Token())
			defer suite.Unlock(t, l)
		}
		suite.Unlock(t, reader)
	})
}

func TestReaderDoesNotJoinANodeThatAnotherOneHasLost(t *testing.T) {
	sharing(t, func(t *testing.T, _ *recipestest.Link, m, other *rwlock.RWMutex) {
		for range 100 { // which of them learns of it first differs
			leases := readAll(t, m, 5)
			time.Sleep(50 * time.Millisecond)
			require.NoError(t, other.Break(t.Context(), leases[0].Node()))
			suite.Wait(t, leases[0].Done())
			again := must(t, read, m)
			require.NotEqual(t, leases[0].Node(), again.Node())
			suite.Unlock(t, again)
		}
	})
}

// A node is watched only after 20 milliseconds.
func TestReaderDoesNotJoinANodeThatItsProcessHasBroken(t *testing.T) {
	sharing(t, func(t *testing.T, _ *recipestest.Link, m, other *rwlock.RWMutex) {
		first := must(t, read, m)
		require.NoError(t, m.Break(t.Context(), first.Node()))
		writer := must(t, write, other)
		reader := waiting(t.Context(), m, 1)[0]
		require.Empty(t, reader, "reads while another one writes")
		suite.Unlock(t, writer)
		suite.Unlock(t, granted(t, reader))
	})
}

// A lease is watched for itself only after 20 milliseconds. Until it ends, nobody joins it.
func TestYoungLeaseHearsOfTheLossFromTheOthers(t *testing.T) {
	sharing(t, func(t *testing.T, link *recipestest.Link, m, other *rwlock.RWMutex) {
		first := must(t, read, m)
		time.Sleep(50 * time.Millisecond)
		young, broken := must(t, read, m), time.Now()
		suite.Unlock(t, first)
		link.Delay(time.Millisecond)
		require.NoError(t, other.Break(t.Context(), young.Node()))
		time.Sleep(time.Millisecond) // the event comes
		synctest.Wait()
		require.NoError(t, young.Err())
		again := must(t, read, m)
		require.NotEqual(t, young.Node(), again.Node())
		suite.Wait(t, young.Done())
		require.ErrorIs(t, young.Err(), protocol.ErrLost)
		require.Less(t, time.Since(broken), 20*time.Millisecond)
		suite.Unlock(t, again)
	})
}

type observer chan protocol.Event

func (o observer) Observe(e protocol.Event) { o <- e }

// The shared node itself reports nothing.
func TestEachSharedLeaseIsReported(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		events := make(observer, 1000)
		m := rwlock.New(srv.Client(t).With(protocol.WithObserver(events)), srv.Root(t)+"/events", rwlock.WithLocalSharing())
		suite.Unlock(t, readAll(t, m, 3)...)
		suite.Unlock(t, must(t, write, m))
		synctest.Wait()
		close(events)
		var got []string
		for e := range events {
			require.Equal(t, "rwlock", e.Recipe)
			if e.Kind != protocol.EventWaiting { // which may come between those of the other readers
				require.NotZero(t, e.Token)
				got = append(got, e.Mode+" "+e.Kind.String())
			}
		}
		require.Equal(t, []string{
			"read acquired", "read acquired", "read acquired", "read released", "read released", "read released",
			"write acquired", "write released",
		}, got)
	})
}
