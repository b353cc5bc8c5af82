package doublebarrier_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

func TestMain(m *testing.M) { suite.Main(m) }

const slow = time.Second // the delay of a link that is slow

const noAuth = -102

// A scene has some clients and an operator in virtual time. All operations of the operator are over
// when they return.
type scene struct {
	*require.Assertions
	*suite.Stage
	t        *testing.T
	path     string
	operator *protocol.Client
	conn     *zk.Conn // the operator's
}

// play runs a scene for n clients. In the end, nothing of the barrier may be left.
func play(t *testing.T, n int, script func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		stage := suite.NewStage(t, n)
		s := &scene{require.New(t), stage, t, stage.Root(t) + "/b", stage.Server.Client(t), nil}
		for _, c := range append(stage.Clients, s.operator) {
			s.conn = suite.Session(t, c).Conn()
		}
		script(s)
		s.Embedded().SetClockRate(1)
		s.Calm()
		s.vanishes()
	})
}

// playAs is play in a subtest.
func playAs(t *testing.T, name string, n int, script func(s *scene)) {
	t.Run(name, func(t *testing.T) { play(t, n, script) })
}

// sweep plays the scene once for each packet of the first client, which has more to do there.
func sweep(t *testing.T, n int, script func(s *scene, step int) (met bool)) {
	t.Helper()
	suite.Sweep(t, func(step int) (met bool) {
		play(t, n, func(s *scene) { met = script(s, step) })
		return met
	})
}

// A call is an Enter or a Leave under way.
type call struct {
	s      *scene
	entry  *doublebarrier.Entry
	err    error
	cancel func()
	done   chan struct{}
}

// call calls a verb, and waits until it does not go on by itself.
func (s *scene) call(verb func(context.Context) (*doublebarrier.Entry, error)) *call {
	c := s.begin(verb)
	synctest.Wait()
	return c
}

func (s *scene) begin(verb func(context.Context) (*doublebarrier.Entry, error)) *call {
	ctx, cancel := context.WithCancel(s.t.Context())
	c := &call{s: s, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.entry, c.err = verb(ctx)
	}()
	return c
}

// enter begins to enter with the i-th client, and comes as far as it can without the others.
func (s *scene) enter(i, n int, opts ...doublebarrier.Option) *call {
	return s.call(doublebarrier.New(s.Clients[i], s.path, n, opts...).Enter)
}

// leave begins to leave what c has entered.
func (s *scene) leave(c *call) *call {
	e := c.must()
	return s.call(func(ctx context.Context) (*doublebarrier.Entry, error) { return e, e.Leave(ctx) })
}

func (c *call) waits() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

func (c *call) wait() { c.s.t.Helper(); suite.Wait(c.s.t, c.done) }

func (c *call) must() *doublebarrier.Entry {
	c.s.t.Helper()
	c.wait()
	c.s.NoError(c.err)
	return c.entry
}

// fails demands an error that wraps all of these, and says that the outcome is unknown only if
// ErrUncertain is among them.
func (c *call) fails(wants ...error) {
	c.s.t.Helper()
	c.wait()
	for _, want := range wants {
		c.s.ErrorIs(c.err, want)
	}
	c.s.Equal(slices.Contains(wants, protocol.ErrUncertain), errors.Is(c.err, protocol.ErrUncertain), "%v", c.err)
}

// inside enters with the first n clients. They come one after the other, so the last one opens the
// gate.
func (s *scene) inside(n int, opts ...doublebarrier.Option) (all []*call) {
	s.t.Helper()
	for i := range n {
		all = append(all, s.enter(i, n, opts...))
	}
	s.succeed(all...)
	return all
}

// abandon ends calls of Enter, and leaves where they have entered, unless the session is lost.
func (s *scene) abandon(calls ...*call) {
	for _, c := range calls {
		c.cancel()
		if c.wait(); c.err == nil {
			go c.entry.Leave(s.t.Context())
		}
	}
}

// finish leaves with all that have entered by these calls.
func (s *scene) finish(calls ...*call) {
	s.t.Helper()
	var all []*call
	for _, c := range calls {
		all = append(all, s.leave(c))
	}
	s.succeed(all...)
}

func (s *scene) succeed(calls ...*call) {
	s.t.Helper()
	for _, c := range calls {
		c.must()
	}
}

// expire ends the i-th client's session at the servers.
func (s *scene) expire(i int) { s.Embedded().ExpireSession(suite.Session(s.t, s.Clients[i]).ID()) }

// gate returns a gate before a new client in place of the i-th.
func (s *scene) gate(i int, op recipestest.Op) *suite.Gate {
	g := &suite.Gate{Op: op}
	s.Clients[i] = s.Links[i].Client(s.t, g.Option(s.Links[i]))
	suite.Session(s.t, s.Clients[i])
	return g
}

// die ends the sessions of clients.
func (s *scene) die(clients ...*protocol.Client) {
	for _, c := range clients {
		s.NoError(c.Close())
	}
	synctest.Wait()
}

func (s *scene) process() string   { return s.path + "/process" }
func (s *scene) members() []string { return suite.Children(s.t, s.operator, s.process()) }

// record returns the data of process.
func (s *scene) record() string {
	data, _ := suite.Get(s.t, s.operator, s.process())
	return string(data)
}

func (s *scene) set(record string) {
	_, err := s.conn.Set(s.process(), []byte(record), -1)
	s.NoError(err)
}

func (s *scene) delete(node string) { s.NoError(s.conn.Delete(node, -1)) }

// wipe deletes a node and all nodes below it (unless another client creates them again).
func (s *scene) wipe(node string) {
	children, _, _ := s.conn.Children(node)
	for _, child := range children {
		s.wipe(node + "/" + child)
	}
	s.conn.Delete(node, -1)
}

// keep creates process as a node that no server removes, with these data from the beginning.
func (s *scene) keep(data string) {
	suite.Keep(s.t, s.operator, s.path)
	_, err := s.conn.Create(s.process(), []byte(data), zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	s.NoError(err)
}

// loseGate deletes all that tells of a gate, but for its members.
func (s *scene) loseGate() {
	for _, node := range suite.Children(s.t, s.operator, s.path) {
		if strings.HasPrefix(node, "ready") {
			s.delete(s.path + "/" + node)
		}
	}
	s.set("")
}

// hold makes the i-th client's session hold something else. So it ends by the client's own clock.
func (s *scene) hold(i int) {
	suite.Must(s.t, doublebarrier.New(s.Clients[i], s.path+"2", 1, doublebarrier.WithWaiting()).Enter)
}

// loseSession ends the session of the i-th client, which holds something. The servers don't know
// that until the next one begins.
func (s *scene) loseSession(i int) {
	old := suite.Session(s.t, s.Clients[i])
	s.Embedded().SetClockRate(0.1)
	s.Links[i].Cut()
	suite.Wait(s.t, old.Done())
	s.Links[i].Heal()
	s.Links[i].TearRequest(recipestest.OpClose, 1) // the client cannot close it yet
}

// vanishes waits until nothing is left of any round.
func (s *scene) vanishes() {
	s.t.Helper()
	suite.Soon(s.t, func() bool {
		there, _, err := s.conn.Exists(s.path + "/ready")
		children, _, _ := s.conn.Children(s.process())
		return err == nil && !there && len(children) == 0
	}, "something is left")
}

// round takes a member of each barrier through a round, in any order, and returns its number.
func round(t *testing.T, barriers ...*doublebarrier.Barrier) int64 {
	t.Helper()
	ctx := suite.Lasting(t)
	entries := make([]*doublebarrier.Entry, len(barriers))
	var entering, leaving suite.Group
	for i, b := range barriers {
		entering.Go(func() (err error) {
			entries[i], err = b.Enter(ctx)
			return err
		})
	}
	require.NoError(t, entering.Wait())

	for i, e := range entries {
		require.Contains(t, e.Members(), e.Node())
		require.Equal(t, fmt.Sprint(entries[0].Members(), entries[0].Token(), entries[0].Round()),
			fmt.Sprint(e.Members(), e.Token(), e.Round()), i)
		leaving.Go(func() error { return errors.Join(e.Leave(ctx), e.Leave(ctx)) })
	}
	require.NoError(t, leaving.Wait())
	require.ErrorIs(t, entries[0].Err(), protocol.ErrReleased)
	return entries[0].Round()
}
