package suite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A Lease is what every lock returns.
type Lease interface {
	Unlock(context.Context) error
	Done() <-chan struct{}
	Err() error
	Context(context.Context) (context.Context, context.CancelFunc)
	Token() int64
	Check() *zk.CheckVersionRequest
	Node() string
}

// A Locker is one way to take one lock.
type Locker struct {
	Lock, TryLock func(context.Context) (Lease, error)
	Block         func(context.Context) (Lease, error) // acquires a lock that Lock waits for
	Do            func(context.Context, func(context.Context, Lease) error) error
	Contenders    func(context.Context) (nodes []string, err error)
	Break         func(ctx context.Context, node string) error
	NoLine        bool // waiters have no nodes
}

// asleep returns a channel that is closed when Lock, through link, has begun to wait. It has then
// read its own node, if it has one, and the node that it waits for.
func (l Locker) asleep(link *recipestest.Link) <-chan struct{} {
	if l.NoLine {
		return link.Answered(recipestest.OpGetData, 1)
	}
	return link.Answered(recipestest.OpGetData, 2)
}

// A NewLocker makes the lock at a path ready for a client.
type NewLocker func(c *protocol.Client, path string) Locker

// Leases turns a verb that returns its own type of lease into one that returns a Lease.
func Leases[L Lease](verb func(context.Context) (L, error)) func(context.Context) (Lease, error) {
	return func(ctx context.Context) (Lease, error) {
		l, err := verb(ctx)
		if err != nil {
			return nil, err // and not a Lease with a nil pointer in it
		}
		return l, nil
	}
}

// Must calls a verb that must succeed within [Limit].
func Must[L any](t *testing.T, verb func(context.Context) (L, error)) L {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	defer cancel()
	l, err := verb(ctx)
	require.NoError(t, err)
	return l
}

// Unlock releases leases that were not lost.
func Unlock[L interface{ Unlock(context.Context) error }](t *testing.T, leases ...L) {
	t.Helper()
	for _, l := range leases {
		require.NoError(t, l.Unlock(t.Context()))
	}
}

// Await polls until list has n entries, and returns them.
func Await[E any](t *testing.T, n int, list func(context.Context) ([]E, error)) (all []E) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		all, err = list(t.Context())
		return err == nil && len(all) == n
	}, Limit, time.Millisecond, "%d entries", n)
	return all
}

// A Scenario is something that must be true of a lock.
type Scenario func(*testing.T, *recipestest.Server, NewLocker)

// run runs a scenario on each kind of server, in each of the ways to take the lock.
func run(t *testing.T, ways map[string]NewLocker, scenario Scenario) {
	Each(t, func(t *testing.T, srv *recipestest.Server) {
		for way, newLocker := range ways {
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				scenario(t, srv, newLocker)
			})
		}
	})
}

// Conform runs the scenarios of every fair lock. locked is the error of TryLock if the lock is
// held.
func Conform(t *testing.T, ways map[string]NewLocker, locked error) {
	ConformUnfair(t, ways, locked)
	for name, scenario := range map[string]Scenario{
		"waiter whose node is deleted goes to the end":    pushedBack,
		"foreign nodes in the directory are ignored":      foreignNodes,
		"parents may be deleted at any time":              parentsDeleted,
		"data of the line's node is left alone":           foreignData,
		"Lock and Unlock cost two round trips once known": twoRoundTrips,
	} {
		t.Run(name, func(t *testing.T) { run(t, ways, scenario) })
	}
}

// ConformUnfair runs the scenarios of every lock, whatever the order in which it is granted.
func ConformUnfair(t *testing.T, ways map[string]NewLocker, locked error) {
	for name, scenario := range map[string]Scenario{
		"TryLock of a held lock only reads": func(t *testing.T, srv *recipestest.Server, newLocker NewLocker) {
			tryBusy(t, srv, newLocker, locked)
		},
		"deleted node ends the lease":                     nodeDeleted,
		"expired session ends the lease":                  sessionExpired,
		"waiter whose session expires waits in the next":  waitsInNextSession,
		"done context fails and leaves nothing":           doneContext,
		"Unlock with a done context still unlocks":        unlockDone,
		"Do releases the lock however it ends":            doReleases,
		"Check fails a transaction once the lock is lost": checkFails,
		"Close ends waits and leases":                     clientCloses,
	} {
		t.Run(name, func(t *testing.T) { run(t, ways, scenario) })
	}
}

func tryBusy(t *testing.T, srv *recipestest.Server, newLocker NewLocker, locked error) {
	path := srv.Root(t) + "/busy"
	held := Must(t, newLocker(srv.Client(t), path).Block)
	link := srv.Link(t)
	c := link.Client(t)
	m := newLocker(c, path)
	CatchUp(t, c)
	before := link.Count(recipestest.OpAny)
	_, err := m.TryLock(t.Context())
	require.ErrorIs(t, err, locked)
	require.Equal(t, 1, link.Count(recipestest.OpAny)-before)
	require.Equal(t, 1, link.Count(recipestest.OpGetChildren))
	Unlock(t, held)
	CatchUp(t, c)
	l, err := m.TryLock(t.Context())
	require.NoError(t, err)
	Unlock(t, l)
}

// nodeDeleted deletes the node of a holder.
func nodeDeleted(t *testing.T, srv *recipestest.Server, newLocker NewLocker) {
	path := srv.Root(t) + "/broken"
	operator := newLocker(srv.Client(t), path)
	m := newLocker(srv.Client(t), path)
	l := Must(t, m.Lock)
	ctx, cancel := l.Context(t.Context())
	defer cancel()

	node := Await(t, 1, operator.Contenders)[0]
	require.NoError(t, operator.Break(t.Context(), node))
	<-l.Done()
	<-ctx.Done()
	require.ErrorIs(t, l.Err(), protocol.ErrLost)
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	require.ErrorIs(t, context.Cause(ctx), protocol.ErrLost)
	require.ErrorIs(t, l.Unlock(t.Context()), protocol.ErrLost)
	require.ErrorIs(t, operator.Break(t.Context(), node), zk.ErrNoNode)
	Unlock(t, Must(t, m.Lock))
}

func pushedBack(t *testing.T, srv *recipestest.Server, newLocker NewLocker) {
	path := srv.Root(t) + "/pushed"
	m := newLocker(srv.Client(t), path)
	held := Must(t, m.Block)
	var wait Group
	wait.Go(func() error {
		return newLocker(srv.Client(t), path).Do(t.Context(), func(context.Context, Lease) error { return nil })
	})

	pushed := Await(t, 2, m.Contenders)[1]
	between := make(chan Lease, 1)
	wait.Go(func() error {
		l, err := m.Block(t.Context())
		between <- l
		return err
	})

	Await(t, 3, m.Contenders)
	require.NoError(t, m.Break(t.Context(), pushed))
	require.Eventually(t, func() bool {
		line, err := m.Contenders(t.Context())
		return err == nil && len(line) == 3 && line[0] == held.Node() && line[2] != pushed
	}, Limit, time.Millisecond)

	Unlock(t, held)
	l := <-between
	require.NotNil(t, l)
	require.Len(t, Await(t, 2, m.Contenders), 2, "the waiter that was pushed back has not overtaken")
	Unlock(t, l)
	require.NoError(t, wait.Wait())
}

func sessionExpired(t *testing.T, srv *recipestest.Server, newLocker NewLocker) {
	c, path := srv.Client(t), srv.Root(t)+"/expired"
	m := newLocker(c, path)
	old := Session(t, c)
	err := m.Do(t.Context(), func(ctx context.Context, l Lease) error {
		srv.ExpireSession(old.ID())
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), protocol.ErrLost)
		require.ErrorIs(t, l.Err(), protocol.ErrLost)
		return errors.New("interrupted")
	})

	require.ErrorContains(t, err, "interrupted")
	require.ErrorIs(t, err, protocol.ErrLost)
	require.ErrorIs(t, old.Err(), protocol.ErrLost)
	Unlock(t, Must(t, m.Lock)) // in the next session
}

func waitsInNextSession(t *testing.T, srv *recipestest.Server, newLocker NewLocker) {
	path := srv.Root(t) + "/on"
	held := Must(t, newLocker(srv.Client(t), path).Block)
	link := srv.Link(t)
	c := link.Client(t)
	old := Session(t, c)
	m := newLocker(c, path)
	asleep := m.asleep(link)
	var wait Group
	wait.Go(func() error {
		l, err := m.Lock(t.Context())
		if err != nil {
			return err
		}
		return l.Unlock(t.Context())
	})

	<-asleep
	srv.ExpireSession(old.ID())
	<-old.Done()
	Unlock(t, held)
	require.NoError(t, wait.Wait())
}

// doneContext ends the context of Lock before the call, and while it waits.
func doneContext(t *testing.T, srv *recipestest.Server, newLocker NewLocker) {
	path := srv.Root(t) + "/done"
	m := newLocker(srv.Client(t), path)
	done, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	_, err := m.Lock(done)
	require.ErrorIs(t, err, context.Canceled, "though the lock is free")
	require.ErrorContains(t, err, "enough")

	held := Must(t, newLocker(srv.Client(t), path).Block)
	short, cancelShort := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancelShort()
	_, err = m.Lock(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	Await(t, 1, m.Contenders)
	Unlock(t, held)
}

func unlockDone(t *testing.T, srv *recipestest.Server, newLocker NewLocker) {
	m := newLocker(srv.Client(t), srv.Root(t)+"/dead")
	l := Must(t, m.Lock)
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Unlock(dead); err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}

	require.ErrorIs(t, l.Err(), protocol.ErrReleased)
	require.NoError(t, l.Unlock(t.Context()), "waits for the same deletion")
	Await(t, 0, m.Contenders)
	require.NoError(t, m.Do(t.Context(), func(context.Context, Lease) error { return nil }))
}

func doReleases(t *testing.T, srv *recipestest.Server, newLocker NewLocker) {
	m := newLocker(srv.Client(t), srv.Root(t)+"/do")
	require.PanicsWithValue(t, "oops", func() {
		m.Do(t.Context(), func(context.Context, Lease) error { panic("oops") })
	})

	Await(t, 0, m.Contenders)

	ctx, cancel := context.WithCancel(t.Context())
	err := m.Do(ctx, func(ctx context.Context, l Lease) error {
		cancel()
		require.NoError(t, l.Err(), "a done ctx is not a lost lock")
		return ctx.Err()
	})

	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, protocol.ErrLost)
	Await(t, 0, m.Contenders)
}

func checkFails(t *testing.T, srv *recipestest.Server, newLocker NewLocker) {
	root := srv.Root(t)
	c := srv.Client(t)
	conn := Session(t, c).Conn()
	l := Must(t, newLocker(c, root+"/guard").Lock)
	_, err := conn.Create(root+"/data", []byte("old"), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	_, err = conn.Multi(l.Check(), &zk.SetDataRequest{Path: root + "/data", Data: []byte("new"), Version: -1})
	require.NoError(t, err)
	Unlock(t, l)
	_, err = conn.Multi(l.Check(), &zk.SetDataRequest{Path: root + "/data", Data: []byte("late"), Version: -1})
	require.ErrorIs(t, err, zk.ErrNoNode)
	data, _ := Get(t, c, root+"/data")
	require.Equal(t, "new", string(data))
}

func foreignNodes(t *testing.T, srv *recipestest.Server, newLocker NewLocker) {
	c, path := srv.Client(t), srv.Root(t)+"/foreign"
	s := Session(t, c)
	_, err := s.EnsurePath(t.Context(), path)
	require.NoError(t, err)
	for _, name := range []string{
		"README", "lock-", "lock-abc", "lock-00000000001x", "write-", "read-abc", "write-00000000001x", "__WRIT__1", "_c_x", "0000000000", "member-0000000000",
	} {
		_, err := s.Conn().Create(path+"/"+name, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}

	m := newLocker(c, path)
	l := Must(t, m.Lock)
	require.Equal(t, []string{l.Node()}, Await(t, 1, m.Contenders))
	require.ErrorIs(t, m.Break(t.Context(), "README"), zk.ErrInvalidPath)
	Unlock(t, l)
}

func parentsDeleted(t *testing.T, srv *recipestest.Server, newLocker NewLocker) {
	c, root := srv.Client(t), srv.Root(t)
	path := root + "/deep/down/here"
	m := newLocker(c, path)
	var last int64
	for range 3 {
		l := Must(t, m.Lock)
		require.True(t, strings.HasSuffix(l.Node(), "0000000000"), "the sequence starts again")
		require.Greater(t, l.Token(), last, "the token did not")
		last = l.Token()
		Unlock(t, l)
		for p := path; p != root; p = p[:strings.LastIndexByte(p, '/')] {
			err := Session(t, c).Conn().Delete(p, -1)
			if !errors.Is(err, zk.ErrNoNode) { // the server may have deleted it: these are containers
				require.NoError(t, err)
			}
		}
	}
}

// lasting creates a path that no server deletes. A container may be deleted at any moment while it
// is empty.
func lasting(t *testing.T, s *protocol.Session, path string) string {
	_, err := s.EnsurePath(t.Context(), path[:strings.LastIndexByte(path, '/')])
	require.NoError(t, err)
	require.NoError(t, s.Create(t.Context(), path, nil, 0))
	return path
}

// foreignData writes data to the line's node, which must stay.
func foreignData(t *testing.T, srv *recipestest.Server, newLocker NewLocker) {
	c := srv.Client(t)
	path := lasting(t, Session(t, c), srv.Root(t)+"/data")
	conn := Session(t, c).Conn()
	m := newLocker(c, path)
	Unlock(t, Must(t, m.Lock))
	Unlock(t, Must(t, m.Lock)) // by now the fast path is open
	_, err := conn.Set(path, []byte("foreign"), -1)
	require.NoError(t, err)
	for range 4 {
		Unlock(t, Must(t, m.Lock))
		data, _ := Get(t, c, path)
		require.Equal(t, "foreign", string(data))
	}
}

func clientCloses(t *testing.T, srv *recipestest.Server, newLocker NewLocker) {
	path := srv.Root(t) + "/close"
	holder, link := srv.Client(t), srv.Link(t)
	waiter := link.Client(t)
	l := Must(t, newLocker(holder, path).Block)
	m := newLocker(waiter, path)
	asleep := m.asleep(link)
	failed := make(chan error, 1)
	go func() {
		_, err := m.Lock(t.Context())
		failed <- err
	}()

	<-asleep
	Close(t, waiter)
	require.ErrorIs(t, <-failed, protocol.ErrClosed)
	Close(t, holder)
	<-l.Done()
	require.ErrorIs(t, l.Err(), protocol.ErrLost)
	require.ErrorIs(t, l.Err(), protocol.ErrClosed)
	require.ErrorIs(t, l.Unlock(t.Context()), protocol.ErrLost)
	_, err := newLocker(holder, path).Lock(t.Context())
	require.ErrorIs(t, err, protocol.ErrClosed)
	require.Empty(t, Await(t, 0, newLocker(srv.Client(t), path).Contenders))
}

func twoRoundTrips(t *testing.T, srv *recipestest.Server, newLocker NewLocker) {
	link := srv.Link(t)
	c := link.Client(t)
	m := newLocker(c, lasting(t, Session(t, c), srv.Root(t)+"/cost"))
	for range 3 { // until the fast path is known to be open
		Unlock(t, Must(t, m.Lock))
	}

	Measure(t, func() error {
		const cycles = 20
		before := []int{link.Count(recipestest.OpMulti), link.Count(recipestest.OpDelete), link.Count(recipestest.OpAny)}
		for range cycles {
			Unlock(t, Must(t, m.Lock))
		}

		// On a slow machine, the node may be watched or the session confirmed in between.
		others := link.Count(recipestest.OpGetData) + link.Count(recipestest.OpSync)
		multis, deletes := link.Count(recipestest.OpMulti)-before[0], link.Count(recipestest.OpDelete)-before[1]
		if all := link.Count(recipestest.OpAny) - before[2]; multis != cycles || deletes != cycles || all > 2*cycles+others {
			return fmt.Errorf("%d cycles cost %d requests: %d multis, %d deletes", cycles, all, multis, deletes)
		}

		return nil
	})
}
