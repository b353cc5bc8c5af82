package doublebarrier_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestMain(m *testing.M) {
	if config := os.Getenv(memberEnv); config != "" {
		os.Exit(runMember(config))
	}
	suite.Main(m)
}

type group = suite.Group

// patient returns a context that bounds what must happen in the end.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*suite.Limit)
	t.Cleanup(cancel)
	return ctx
}

// clients returns n clients, each with a session of its own.
func clients(t testing.TB, srv *recipestest.Server, n int) (all []*protocol.Client) {
	for range n {
		all = append(all, srv.Client(t))
	}
	return all
}

// An entering is an Enter under way.
type entering struct {
	entry *doublebarrier.Entry
	err   error
	done  chan struct{}
}

func enter(ctx context.Context, b *doublebarrier.Barrier) *entering {
	e := &entering{done: make(chan struct{})}
	go func() {
		defer close(e.done)
		e.entry, e.err = b.Enter(ctx)
	}()
	return e
}

var errStuck = errors.New("no answer from Enter")

func (e *entering) wait() (*doublebarrier.Entry, error) {
	select {
	case <-e.done:
		return e.entry, e.err
	case <-time.After(3 * suite.Limit):
		return nil, errStuck
	}
}

// oneWaits returns an Enter of the first client that has joined and waits for another member, and
// what ends its ctx.
func oneWaits(t *testing.T) (stage *suite.Stage, path string, e *entering, cancel func()) {
	stage = suite.NewStage(t, 2)
	path = stage.Root(t) + "/b"
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	e = enter(ctx, doublebarrier.New(stage.Clients[0], path, 2))
	joined(t, stage.Clients[1], path, 1)
	synctest.Wait()
	return stage, path, e, cancel
}

// must returns the entry, which has to come.
func (e *entering) must(t testing.TB) *doublebarrier.Entry {
	t.Helper()
	entry, err := e.wait()
	require.NoError(t, err)
	return entry
}

// joined waits until so many members have joined.
func joined(t testing.TB, c *protocol.Client, path string, n int) {
	t.Helper()
	suite.CatchUp(t, c)
	for ctx := patient(t); ; {
		var events <-chan zk.Event
		children, err := protocol.Do(ctx, session(t, c), func(conn *zk.Conn) (children []string, err error) {
			for there := true; there; {
				if children, _, events, err = conn.ChildrenW(path + "/process"); err != zk.ErrNoNode {
					break
				}
				there, _, events, err = conn.ExistsW(path + "/process")
			}
			return children, err
		})
		require.NoError(t, err)
		if len(children) == n {
			return
		}
		select {
		case <-events:
		case <-ctx.Done():
			require.FailNow(t, "not joined", "%d instead of %d", len(children), n)
		}
	}
}

func session(t testing.TB, c *protocol.Client) *protocol.Session {
	t.Helper()
	s, err := c.Session(patient(t))
	require.NoError(t, err)
	return s
}

// round takes one member of each barrier through a round, and checks that they agree on the
// members.
func round(t testing.TB, barriers ...*doublebarrier.Barrier) {
	t.Helper()
	ctx := patient(t)
	var all []*entering
	for _, b := range barriers {
		all = append(all, enter(ctx, b))
	}
	var names, members []string
	var leaving group
	for _, e := range all {
		entry := e.must(t)
		require.NoError(t, entry.Err())
		names = append(names, entry.Node())
		members = entry.Members()
		require.Equal(t, members, all[0].must(t).Members())
		require.Equal(t, entry.Token(), all[0].must(t).Token())
		require.Equal(t, entry.Round(), all[0].must(t).Round())
	}
	require.ElementsMatch(t, names, members)
	for _, e := range all {
		leaving.Go(func() error { return e.entry.Leave(ctx) })
	}
	require.NoError(t, leaving.Wait())
	for _, e := range all {
		require.ErrorIs(t, e.entry.Err(), protocol.ErrReleased)
		require.NoError(t, e.entry.Leave(ctx), "again")
	}
}

// empty checks that nothing is left of any round. The last to leave may have been another client's
// member.
func empty(t testing.TB, c *protocol.Client, path string) {
	t.Helper()
	suite.CatchUp(t, c)
	conn := session(t, c).Conn()
	require.False(t, suite.Exists(t, c, path+"/ready"), "a gate is left")
	children, _, err := conn.Children(path + "/process")
	if err != zk.ErrNoNode {
		require.NoError(t, err)
		require.Empty(t, children)
	}
}

func pathOf(parts ...any) string {
	path := fmt.Sprint(parts[0])
	for _, p := range parts[1:] {
		path += fmt.Sprintf("/%v", p)
	}
	return path
}

// persistent creates the path, and the node of its members, as nodes that no server reaps.
func persistent(t testing.TB, c *protocol.Client, path string) {
	t.Helper()
	suite.Keep(t, c, path, path+"/process")
}
