package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

func TestReadingAndWritingAreFairLocks(t *testing.T) {
	suite.Conform(t, ways(), rwlock.ErrLocked)
}

func TestLockIsGrantedInOrderOfArrivalToReadersTogether(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/order"
		first := rwlock.New(srv.Client(t), path)
		held := must(t, write, first)

		const arrivals = "RRWRWWRRRW"
		order := make(chan int, len(arrivals))
		var inside atomic.Int32
		var wait group
		var together *meeting
		for i, kind := range arrivals {
			m := rwlock.New(srv.Client(t), path)
			do := m.Do
			if kind == 'R' {
				do = m.RDo
			}

			if kind == 'W' || arrivals[max(i, 1)-1] == 'W' || i == 0 {
				together = newMeeting(len(arrivals[i:]) - len(strings.TrimLeft(arrivals[i:], "R")))
			}

			like := together
			wait.Go(func() error {
				return do(t.Context(), func(ctx context.Context, l *rwlock.Lease) error {
					order <- i
					defer inside.Add(-1)
					if n := inside.Add(1); l.Exclusive() && n > 1 {
						return fmt.Errorf("writer %d is one of %d", i, n)
					}
					return like.come(ctx)
				})
			})

			line := awaitContenders(t, first, i+2)
			require.Equal(t, kind == 'W', line[i+1].Exclusive)
		}

		unlock(t, held)
		require.NoError(t, wait.Wait())
		close(order)
		var got []int
		for i := range order {
			got = append(got, i)
		}

		requireArrivalOrder(t, arrivals, got)
	})
}

// A meeting blocks its participants until all have come.
type meeting struct {
	missing atomic.Int32
	all     chan struct{}
}

func newMeeting(n int) *meeting {
	m := &meeting{all: make(chan struct{})}
	m.missing.Store(int32(max(n, 1)))
	return m
}

func (m *meeting) come(ctx context.Context) error {
	if m.missing.Add(-1) == 0 {
		close(m.all)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case <-m.all:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d have not come: %w", m.missing.Load(), context.Cause(ctx))
	}
}

// requireArrivalOrder fails the test if a contender held the lock before an earlier arrival that
// excludes it.
func requireArrivalOrder(t *testing.T, arrivals string, got []int) {
	t.Helper()
	require.Len(t, got, len(arrivals))
	for at, i := range got {
		for _, j := range got[:at] {
			if j > i {
				require.Equal(t, "RR", string([]byte{arrivals[i], arrivals[j]}), "%d before %d in %v of %s", j, i, got, arrivals)
			}
		}
	}
}

func TestReadersBehindWritersAreWokenOnce(t *testing.T) {
	suite.Steadily(t, suite.Each, func(t *testing.T, srv *recipestest.Server) {
		const writers, readers = 5, 4
		path := srv.Root(t) + "/once"
		m := rwlock.New(srv.Client(t), path)
		leases := []*rwlock.Lease{must(t, write, m)}
		var wait group
		var queue []<-chan *rwlock.Lease
		for i := range writers - 1 {
			queue = append(queue, enter(t, &wait, write, rwlock.New(srv.Client(t), path), m, i+2))
		}

		var links []*recipestest.Link
		var clients []*protocol.Client
		var entered []<-chan *rwlock.Lease
		for i := range readers {
			link := srv.Link(t)
			links = append(links, link)
			c := link.Client(t)
			clients = append(clients, c)
			entered = append(entered, enter(t, &wait, read, rwlock.New(c, path), m, writers+i+1))
			<-link.Answered(recipestest.OpGetData, 2) // its own node, and the one it waits for
			<-link.Answered(recipestest.OpExists, 1)  // and the release marker
		}

		for _, next := range queue {
			unlock(t, leases[len(leases)-1])
			leases = append(leases, <-next)
		}

		var before []int
		for _, link := range links {
			require.Zero(t, link.Events(), "woken by a writer before the last")
			if suite.Steady(t, link) {
				require.Equal(t, 1, link.Count(recipestest.OpGetChildren))
			}
			before = append(before, requests(link))
		}

		unlock(t, leases[len(leases)-1])

		for i, link := range links {
			l := <-entered[i]
			if suite.Steady(t, link) {
				require.Equal(t, before[i], requests(link), "the marker says that no writer is ahead")
				<-link.Answered(recipestest.OpEvent, 2)
				suite.CatchUp(t, clients[i])
				require.Equal(t, 2, link.Events(), "one wake-up: the marker and the node's deletion")
			}
			defer unlock(t, l)
		}

		require.NoError(t, wait.Wait())
	})
}

// requests counts the requests, without those that keep a session alive: a Sync, and the deletion
// of nothing. It leaves out setWatches, too: zk.Conn sends that on its first connection if a watch
// was set very soon.
func requests(link *recipestest.Link) (n int) {
	n = link.Count(recipestest.OpAny)
	for _, op := range []recipestest.Op{recipestest.OpSync, recipestest.OpDelete, recipestest.OpSetWatches} {
		n -= link.Count(op)
	}
	return n
}

func TestReleaseWakesOnlyThoseItLetsIn(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/wake"
		m := rwlock.New(srv.Client(t), path)
		held := must(t, write, m)
		var wait group
		const kinds = "RRRWR"
		links := make([]*recipestest.Link, len(kinds))
		clients := make([]*protocol.Client, len(kinds))
		entered := make([]<-chan *rwlock.Lease, len(kinds))

		for i, kind := range kinds {
			links[i] = srv.Link(t)
			clients[i] = links[i].Client(t)
			v := read
			if kind == 'W' {
				v = write
			}
			entered[i] = enter(t, &wait, v, rwlock.New(clients[i], path), m, i+2)
			<-links[i].Answered(recipestest.OpGetData, 2)
		}

		<-links[4].Answered(recipestest.OpExists, 1) // the writer's release marker, as others are ahead of it
		for _, link := range links[:4] {
			require.Zero(t, link.Count(recipestest.OpExists), "no watch for the marker of a first contender or a reader")
		}

		unlock(t, held)
		readers := []*rwlock.Lease{<-entered[0], <-entered[1], <-entered[2]}
		for i := range readers {
			require.Equal(t, 1, links[i].Events())
		}

		multis := links[2].Count(recipestest.OpMulti)
		unlock(t, readers...) // the writer's predecessor is the last
		require.Equal(t, multis, links[2].Count(recipestest.OpMulti), "a reader cannot know that no contender is ahead")
		writer := <-entered[3]
		require.Equal(t, 1, links[3].Events(), "the writer was woken by a reader that was not the last")
		require.Zero(t, links[4].Events(), "the reader behind the writer was woken")
		unlock(t, writer)
		last := <-entered[4]
		<-links[4].Answered(recipestest.OpEvent, 2)

		for i, events := range []int{1, 1, 1, 1, 2} {
			suite.CatchUp(t, clients[i])
			own := 0
			if i < 4 {
				own = 1 // the deletion of its own node, which it had read
			}
			require.Equal(t, events+own, links[i].Events(), "contender %d", i)
		}

		unlock(t, last)
		require.NoError(t, wait.Wait())
	})
}

func TestCancelledWriterLetsReadersBehindItInAtOnce(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/freed"
		m := rwlock.New(srv.Client(t), path)
		reading := must(t, read, m)
		ctx, cancel := context.WithCancel(t.Context())
		cancelled := make(chan error, 1)
		go func() {
			_, err := rwlock.New(srv.Client(t), path).Lock(ctx)
			cancelled <- err
		}()

		awaitContenders(t, m, 2)
		var wait group
		behind := []<-chan *rwlock.Lease{
			enter(t, &wait, read, rwlock.New(srv.Client(t), path), m, 3),
			enter(t, &wait, read, rwlock.New(srv.Client(t), path), m, 4),
		}

		cancel()
		require.ErrorIs(t, <-cancelled, context.Canceled)
		for _, entered := range behind {
			unlock(t, <-entered)
		}

		require.NoError(t, reading.Err(), "the first one still reads")
		unlock(t, reading)
		require.NoError(t, wait.Wait())
	})
}

func TestTryTakesWhatIsFreeAndOtherwiseOnlyReads(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/try"
		m := rwlock.New(srv.Client(t), path)
		link := srv.Link(t)
		trier, reader := link.Client(t), srv.Client(t)
		tried := rwlock.New(trier, path)
		busy := func(try func(context.Context) (*rwlock.Lease, error)) {
			t.Helper()
			suite.CatchUp(t, trier)
			before, reads := link.Count(recipestest.OpAny), link.Count(recipestest.OpGetChildren)
			_, err := try(t.Context())
			require.ErrorIs(t, err, rwlock.ErrLocked)
			require.Equal(t, 1, link.Count(recipestest.OpAny)-before)
			require.Equal(t, 1, link.Count(recipestest.OpGetChildren)-reads)
		}

		reading := must(t, read, m)
		busy(tried.TryLock)
		suite.CatchUp(t, reader)
		second, err := rwlock.New(reader, path).TryRLock(t.Context())
		require.NoError(t, err, "there are only readers")
		require.False(t, second.Exclusive())
		unlock(t, second)

		var wait group
		entered := enter(t, &wait, write, m, m, 2)
		busy(tried.TryLock)
		busy(tried.TryRLock) // it would overtake the writer
		unlock(t, reading)
		writing := <-entered
		require.True(t, writing.Exclusive())
		busy(tried.TryLock)
		busy(tried.TryRLock)
		unlock(t, writing)
		require.NoError(t, wait.Wait())
		suite.CatchUp(t, trier)
		l, err := tried.TryLock(t.Context())
		require.NoError(t, err)
		unlock(t, l)
	})
}

func TestThereIsNoUpgrade(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		m := rwlock.New(srv.Client(t), srv.Root(t)+"/upgrade")
		reading := must(t, read, m)
		_, err := m.TryLock(t.Context())
		require.ErrorIs(t, err, rwlock.ErrLocked)
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err = m.Lock(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, reading.Err())
		require.Equal(t, reading.Node(), awaitContenders(t, m, 1)[0].Node)
		unlock(t, reading)
	})
}

func TestContendersShowReadersAndWriters(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/line"
		began := time.Now().Add(-time.Minute) // clocks may differ
		m := rwlock.New(c, path, rwlock.WithData([]byte("host 7")))
		reading := must(t, read, m)
		var wait group
		entered := enter(t, &wait, write, m, m, 2)
		line := awaitContenders(t, m, 2)

		for i, c := range line {
			require.Equal(t, i == 1, c.Exclusive)
			require.Equal(t, "host 7", string(c.Data))
			require.True(t, c.Since.After(began))
		}

		require.Equal(t, suite.Session(t, c).ID(), line[0].Session)
		require.Equal(t, reading.Node(), line[0].Node)
		require.Equal(t, reading.Token(), line[0].Token)
		unlock(t, reading)
		writing := <-entered
		require.Equal(t, writing.Token(), line[1].Token)
		unlock(t, writing)
		require.NoError(t, wait.Wait())
	})
}

func TestMutexAtThePathIsShownAsExclusive(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/shown", srv.Client(t)
		mutex := line.New(protocol.NewRecipe(c, "test", path), line.Locks...)
		held, err := mutex.Enter(suite.Lasting(t), line.Request{Kind: "lock-"})
		require.NoError(t, err)

		shown := awaitContenders(t, rwlock.New(c, path), 1)

		require.Equal(t, held.Node(), shown[0].Node)
		require.True(t, shown[0].Exclusive)
		require.NoError(t, held.Release(suite.Lasting(t)))
	})
}

func TestAllSpellingsShareOneLine(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/spelt"
		ends := map[rwlock.Spelling][2]string{
			rwlock.Native:  {"-read-0000000000", "-write-0000000000"},
			rwlock.Curator: {"-__READ__0000000000", "-__WRIT__0000000000"},
			rwlock.Kazoo:   {"-__rlock__0000000000", "-__lock__0000000000"},
		}

		others := make(map[*protocol.Client]*rwlock.RWMutex)
		for s := range ends {
			other := srv.Client(t)
			others[other] = rwlock.New(other, path, rwlock.WithSpelling(s))
		}

		c := srv.Client(t)

		for s, end := range ends {
			m := rwlock.New(c, path, rwlock.WithSpelling(s))
			for i, v := range []verb{read, write} {
				l := must(t, v, m)
				require.Regexp(t, end[i]+"$", l.Node())
				require.Equal(t, i == 1, l.Exclusive())
				require.Equal(t, i == 1, awaitContenders(t, m, 1)[0].Exclusive)

				for client, other := range others {
					suite.CatchUp(t, client)
					_, err := other.TryLock(t.Context())
					require.ErrorIs(t, err, rwlock.ErrLocked)
					shared, err := other.TryRLock(t.Context())
					if l.Exclusive() {
						require.ErrorIs(t, err, rwlock.ErrLocked)
					} else {
						require.NoError(t, err)
						unlock(t, shared)
					}
				}

				unlock(t, l)

				// The sequence starts again at 0, unless the server has removed the empty container
				// first.
				if err := suite.Session(t, c).Conn().Delete(path, -1); !errors.Is(err, zk.ErrNoNode) {
					require.NoError(t, err)
				}
			}
		}
	})
}

func TestBadInputIsRefusedBeforeAnyIO(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	link := srv.Link(t)
	c := link.Client(t)
	before := link.Packets()
	tooMuch := rwlock.WithData(make([]byte, protocol.MaxData))

	for name, bad := range map[string]struct {
		m    *rwlock.RWMutex
		want error
	}{
		"nil client":    {rwlock.New(nil, "/a"), nil},
		"empty path":    {rwlock.New(c, ""), zk.ErrInvalidPath},
		"relative path": {rwlock.New(c, "a"), zk.ErrInvalidPath},
		"dots":          {rwlock.New(c, "/a/../b"), zk.ErrInvalidPath},
		"root":          {rwlock.New(c, "/"), zk.ErrInvalidPath},
		"too much data": {rwlock.New(c, "/a", tooMuch), protocol.ErrTooLarge},
		"bad spelling":  {rwlock.New(c, "/a", rwlock.WithSpelling(3)), nil},
		"no spelling":   {rwlock.New(c, "/a", rwlock.WithSpelling(-1)), nil},
	} {
		m := bad.m
		nothing := func(context.Context, *rwlock.Lease) error { return nil }
		for _, call := range []func() error{
			func() error { _, err := m.Lock(t.Context()); return err },
			func() error { _, err := m.RLock(t.Context()); return err },
			func() error { _, err := m.TryLock(t.Context()); return err },
			func() error { _, err := m.TryRLock(t.Context()); return err },
			func() error { return m.Do(t.Context(), nothing) },
			func() error { return m.RDo(t.Context(), nothing) },
		} {
			err := call()
			require.ErrorContains(t, err, "rwlock: ", name)
			if bad.want != nil {
				require.ErrorIs(t, err, bad.want, name)
			}
		}

		if bad.want != protocol.ErrTooLarge {
			_, err := m.Contenders(t.Context())
			require.Error(t, err, name)
			require.Error(t, m.Break(t.Context(), "x"), name)
		}
	}

	require.Equal(t, before, link.Packets())
}
