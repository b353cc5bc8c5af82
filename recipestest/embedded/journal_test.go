package embedded_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// lazily is a sync that does not wait for the disk, for tests that crash no machine.
func lazily(*os.File) error { return nil }

// kept returns a configuration with a data directory.
func kept(dir string) embedded.Config {
	return embedded.Config{InMemory: true, Dir: dir}.WithSync(lazily)
}

// walk returns all that clients can see of the nodes, in the order in which the server lists them.
func walk(t require.TestingT, c *wireClient) []string {
	call := func(op zkwire.Op, body packet) *answer {
		a, err := c.call(op, body)
		require.NoError(t, err)
		require.Zero(t, a.code)
		return a
	}

	var nodes []string
	var visit func(path, prefix string)
	visit = func(path, prefix string) {
		a := call(zkwire.OpGetData, packet{}.string(path).bool(false))
		data, st := a.Buffer(), a.stat()
		nodes = append(nodes, fmt.Sprintf("%s %q %t %+v acl %x", path, data, data == nil, st, call(zkwire.OpGetACL, packet{}.string(path)).Rest))
		for _, name := range call(zkwire.OpGetChildren, packet{}.string(path).bool(false)).Strings() {
			visit(prefix+name, prefix+name+"/")
		}
	}
	visit("/", "/")
	return nodes
}

// copied returns a copy of a data directory as it would be after a crash. The server must have
// acknowledged all that it was asked for.
func copied(t testing.TB, dir string) string {
	t.Helper()
	content := suite.Got(os.ReadFile(filepath.Join(dir, "data")))(t)
	return withData(t, content)
}

// withData returns a data directory with this content.
func withData(t testing.TB, content []byte) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data"), content, 0o600))
	return dir
}

func TestDirKeepsNodesAndSessions(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]func(*testing.T, *embedded.Server, string) string{
		"closed": func(t *testing.T, s *embedded.Server, dir string) string {
			require.NoError(t, s.Close())
			return dir
		},
		"crashed": func(t *testing.T, _ *embedded.Server, dir string) string { return copied(t, dir) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "new", "directory")
			s := start(t, kept(dir))
			c, ends, expires := connect(t, s, hello{}), connect(t, s, hello{}), connect(t, s, hello{})
			for _, body := range []packet{
				packet{}.create("/null", nil, 0), packet{}.create("/empty", []byte{}, 0),
				packet{}.create("/n-", []byte("first"), 2), packet{}.create("/n-", nil, 2),
				packet{}.create("/mine", nil, 1), packet{}.create("/a", nil, 0), packet{}.create("/a/b", nil, 0),
				packet{}.string("/read").buffer(nil).acl(1, "digest", "me:hash").int32(0),
			} {
				require.Zero(t, c.must(t, zkwire.OpCreate, body).code)
			}
			require.Zero(t, c.must(t, zkwire.OpCreateContainer, packet{}.create("/container", nil, 4)).code)
			require.Zero(t, c.must(t, zkwire.OpCreateTTL, packet{}.create("/ttl", nil, 5).int64(time.Hour.Milliseconds())).code)
			require.Zero(t, c.must(t, zkwire.OpSetData, packet{}.string("/a").buffer([]byte("new")).int32(0)).code)
			require.Zero(t, c.must(t, zkwire.OpSetACL, packet{}.string("/a/b").acl(31, "ip", "127.0.0.1").int32(0)).code)
			require.Zero(t, c.must(t, zkwire.OpDelete, packet{}.string("/read").int32(0)).code)
			require.Zero(t, c.must(t, zkwire.OpMulti, packet{}.part(zkwire.OpCreate).create("/m", nil, 0).
				part(zkwire.OpSetData).string("/m").buffer(nil).int32(0).part(zkwire.OpCheck).string("/m").int32(1).end()).code)
			require.NoError(t, s.SetSequence("/a", 77))
			require.EqualValues(t, zkwire.CodeNoNode, c.must(t, zkwire.OpDelete, packet{}.string("/none").int32(0)).code)
			require.Zero(t, ends.must(t, zkwire.OpCreate, packet{}.create("/ends", nil, 1)).code)
			require.Zero(t, ends.must(t, zkwire.OpCloseSession, nil).code)
			require.Zero(t, expires.must(t, zkwire.OpCreate, packet{}.create("/expires", nil, 1)).code)
			require.True(t, s.ExpireSession(expires.session))
			before := walk(t, c)
			require.Equal(t, before, walk(t, connect(t, s.Follower(), hello{})))
			last := c.must(t, zkwire.OpPing, nil).zxid

			s = start(t, kept(restart(t, s, dir)))
			resumed := connect(t, s, hello{session: c.session, password: c.password, seen: last})
			require.Equal(t, c.session, resumed.session)
			require.Equal(t, before, walk(t, resumed))
			for _, gone := range []*wireClient{ends, expires} {
				require.Zero(t, connect(t, s, hello{session: gone.session, password: gone.password}).session)
			}
			require.Zero(t, connect(t, s, hello{session: c.session, password: make([]byte, 16)}).session)
			require.Greater(t, connect(t, s, hello{}).session, expires.session)

			// What belongs to the session still does, and numbers go on.
			resumed = connect(t, s, hello{session: c.session, password: c.password})
			require.Equal(t, "/a/n-0000000077", resumed.must(t, zkwire.OpCreate, packet{}.create("/a/n-", nil, 3)).String())
			require.Zero(t, resumed.must(t, zkwire.OpCloseSession, nil).code)
			for _, path := range []string{"/mine", "/a/n-0000000077"} {
				require.EqualValues(t, zkwire.CodeNoNode, connect(t, s, hello{}).must(t, zkwire.OpExists, packet{}.string(path).bool(false)).code)
			}
		})
	}
}

func TestTimeoutsOfSessionsBeginAgainWithTheServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := suite.Got(embedded.Start(kept(dir)))(t)
		returns, stays := connect(t, s, hello{timeout: 10_000}), connect(t, s, hello{timeout: 10_000})
		for _, c := range []*wireClient{returns, stays} {
			require.Zero(t, c.must(t, zkwire.OpCreate, packet{}.create("/n-", nil, 3)).code)
		}
		require.NoError(t, s.Close())

		time.Sleep(time.Hour)
		s = start(t, kept(dir))
		witness := connect(t, s, hello{})
		time.Sleep(9 * time.Second)
		require.Equal(t, returns.session, connect(t, s, hello{session: returns.session, password: returns.password, timeout: 10_000}).session)
		require.Len(t, witness.must(t, zkwire.OpGetChildren, packet{}.string("/").bool(false)).Strings(), 3)

		time.Sleep(4 * time.Second)
		require.Len(t, witness.must(t, zkwire.OpGetChildren, packet{}.string("/").bool(false)).Strings(), 2)
		require.Zero(t, connect(t, s, hello{session: stays.session, password: stays.password}).session)
	})
}

// A disk is a sync that a test can hold up or let fail.
type disk struct {
	mu    sync.Mutex
	held  chan struct{}
	err   error
	syncs int
}

func (d *disk) sync(*os.File) error {
	d.mu.Lock()
	d.syncs++
	held := d.held
	d.mu.Unlock()
	if held != nil {
		<-held
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// hold makes every sync from now on wait until release.
func (d *disk) hold() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = make(chan struct{})
}

// release ends hold, and returns how many syncs have begun since the start of the server.
func (d *disk) release() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.held)
	d.held = nil
	return d.syncs
}

// onDisk runs f in a bubble with a server whose data is on a disk.
func onDisk(t *testing.T, f func(t *testing.T, s *embedded.Server, d *disk)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := new(disk)
		s := suite.Got(embedded.Start(kept(t.TempDir()).WithSync(d.sync)))(t)
		defer s.Close()
		f(t, s, d)
	})
}

func TestNobodyLearnsOfAWriteBeforeItHasReachedTheDisk(t *testing.T) {
	onDisk(t, func(t *testing.T, s *embedded.Server, d *disk) {
		writer, refused, syncer := connect(t, s, hello{}), connect(t, s, hello{}), connect(t, s, hello{})
		reader, expired := connect(t, s, hello{}), connect(t, s, hello{})
		f := s.Follower()
		follower := connect(t, f, hello{})
		require.EqualValues(t, zkwire.CodeNoNode, reader.must(t, zkwire.OpExists, packet{}.string("/a").bool(true)).code)

		d.hold()
		code := func(c *wireClient, op zkwire.Op, body packet) func() zkwire.Code {
			return func() zkwire.Code { return c.must(t, op, body).code }
		}
		written := later(code(writer, zkwire.OpCreate, packet{}.create("/a", nil, 0)))
		exists := later(code(refused, zkwire.OpCreate, packet{}.create("/a", nil, 0)))
		expiry := later(func() bool { return s.ExpireSession(expired.session) })
		began := later(func() *wireClient { return connect(t, s, hello{}) })
		told := later(func() *wireClient {
			return connect(t, s, hello{session: expired.session, password: expired.password})
		})
		synced := later(code(syncer, zkwire.OpSync, packet{}.string("/")))

		// Reads do not wait, and see nothing of it.
		for _, c := range []*wireClient{reader, follower} {
			require.EqualValues(t, zkwire.CodeNoNode, c.must(t, zkwire.OpExists, packet{}.string("/a").bool(false)).code)
			require.Empty(t, c.sync(t))
		}
		requireNothing(t, written, "a write")
		requireNothing(t, exists, "a refusal that rests on a write")
		requireNothing(t, expiry, "ExpireSession")
		requireNothing(t, began, "a new session")
		requireNothing(t, told, "the news that a session has ended")
		requireNothing(t, synced, "a sync")

		d.release()
		require.Zero(t, suite.Wait(t, written))
		require.EqualValues(t, zkwire.CodeNodeExists, suite.Wait(t, exists))
		require.True(t, suite.Wait(t, expiry))
		require.NotZero(t, suite.Wait(t, began).session)
		require.Zero(t, suite.Wait(t, told).session)
		require.Zero(t, suite.Wait(t, synced))
		require.Equal(t, []string{"1 /a"}, reader.sync(t))
		require.Zero(t, follower.must(t, zkwire.OpExists, packet{}.string("/a").bool(false)).code)
	})
}

func TestWritesShareASync(t *testing.T) {
	onDisk(t, func(t *testing.T, s *embedded.Server, d *disk) {
		const clients, each = 10, 20
		var all []*wireClient
		for range clients {
			all = append(all, connect(t, s, hello{}))
		}

		d.hold()
		first := later(func() zkwire.Code { return all[0].must(t, zkwire.OpCreate, packet{}.create("/first", nil, 0)).code })
		for _, c := range all[1:] {
			for range each {
				require.NoError(t, c.send(zkwire.OpCreate, packet{}.create("/n-", nil, 2)))
			}
		}
		synctest.Wait()
		before := d.release()
		require.Zero(t, suite.Wait(t, first))

		for _, c := range all[1:] {
			for range each {
				a := suite.Got(c.receive())(t)
				require.Zero(t, a.code)
			}
		}
		d.hold()
		require.Equal(t, before+1, d.release(), "all that was written meanwhile is one record")
	})
}

func TestAnswersBehindAWriteComeInOrderHoweverLongTheyAre(t *testing.T) {
	onDisk(t, func(t *testing.T, s *embedded.Server, d *disk) {
		c := connect(t, s, hello{})
		require.Zero(t, c.must(t, zkwire.OpCreate, packet{}.create("/big", make([]byte, 1_000_000), 0)).code)

		// More than a connection may leave unsent.
		d.hold()
		const reads = 20
		requests := frame(packet{}.int32(100).op(zkwire.OpCreate).create("/a", nil, 0))
		requests = append(requests, frame(packet{}.int32(101).op(zkwire.OpAuth).int32(0).string("digest").buffer([]byte("me:secret")))...)
		for i := range reads {
			requests = append(requests, frame(packet{}.int32(int32(102+i)).op(zkwire.OpGetData).string("/big").bool(false))...)
		}
		suite.Got(c.nc.Write(requests))(t)
		synctest.Wait()
		d.release()

		for i := range 2 + reads {
			a := suite.Got(c.receive())(t)
			require.EqualValues(t, 100+i, a.xid)
			require.Zero(t, a.code)
		}
	})
}

func TestTooManyWritesWaitForTheDisk(t *testing.T) {
	onDisk(t, func(t *testing.T, s *embedded.Server, d *disk) {
		const clients = 24
		var all []*wireClient
		for range clients {
			all = append(all, connect(t, s, hello{}))
		}

		// The record that is being written, and 16 MB that wait for it, are carried out.
		d.hold()
		request := packet{}.create("/n-", make([]byte, 1_000_000), 2)
		for _, c := range all {
			c.nc.SetDeadline(time.Time{})
			go c.send(zkwire.OpCreate, request)
			synctest.Wait()
		}
		var size int
		_, found, _ := strings.Cut(word(t, s, "mntr"), "zk_approximate_data_size\t")
		suite.Got(fmt.Sscan(found, &size))(t)
		require.Less(t, size, 20_000_000)
		d.release()

		numbers := make(map[string]bool)
		for _, c := range all {
			a := suite.Got(c.receive())(t)
			require.Zero(t, a.code)
			numbers[a.String()] = true
		}
		require.Len(t, numbers, clients)
	})
}

func TestServerEndsWhenItsDataCannotBeWritten(t *testing.T) {
	onDisk(t, func(t *testing.T, s *embedded.Server, d *disk) {
		c, other := connect(t, s, hello{}), connect(t, s, hello{})
		require.NoError(t, s.Err())
		d.mu.Lock()
		d.err = errors.New("no space left")
		d.mu.Unlock()

		_, err := c.call(zkwire.OpCreate, packet{}.create("/a", nil, 0))
		require.Error(t, err, "what is not on the disk is not acknowledged")
		require.Error(t, suite.Err(other.receive()))
		suite.Wait(t, s.Done())
		require.ErrorContains(t, s.Err(), "embedded: no space left")
		require.Equal(t, s.Err(), s.Resume())
		require.Error(t, suite.Err(s.Dial("", "", 0)))
		s.ExpireSession(c.session) // waits for no disk
		require.Equal(t, s.Err(), s.Close())
	})
}
