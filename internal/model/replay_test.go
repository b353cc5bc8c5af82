package model

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// TestCodeFollowsTheTraces has the lock do what the model has done, step by step. After each step
// it compares who holds, which nodes there are, and what each contender waits for.
func TestCodeFollowsTheTraces(t *testing.T) {
	for _, tr := range traces {
		t.Run(tr.name, func(t *testing.T) {
			require.NoError(t, replay(t, readTrace(t, tr.name)))
		})
	}
}

// TestReplaysCanFail has the lock follow traces that were falsified.
func TestReplaysCanFail(t *testing.T) {
	first := func(all []step, what string, number int) int {
		return slices.IndexFunc(all, func(s step) bool { return s.what == what && s.number >= number })
	}
	for name, c := range map[string]struct {
		trace   string
		falsify func(all []step) []step
		finds   string
	}{
		"another contender holds": {"marker", func(all []step) []step {
			all[first(all, "Hold", 0)].holds = "111"
			return all
		}, "the lock is held: false"},
		"a node is not there": {"marker", func(all []step) []step {
			all[first(all, "Create", 0)].existing = "0000"
			return all
		}, "the nodes in line are"},
		"a waiter waits for another node": {"marker", func(all []step) []step {
			s := &all[first(all, "List", 1)]
			s.number = 3
			return all
		}, "it has sent"},
		"a contender is granted by a marker that it did not ask for": {"marker", func(all []step) []step {
			i := first(all, "Marker", 0)
			return slices.Delete(all, i, i+1)
		}, "the lock is held: false"},
		"a server that knows less takes the session": {"refused", func(all []step) []step {
			s := &all[first(all, "Refused", 0)]
			s.what, s.server = "Resume", 2
			return all
		}, "refuses the session"},
		"the node is not looked for after an answer was lost": {"lost-answer", func(all []step) []step {
			all[first(all, "Resume", 0)].next = "listing"
			return all
		}, "it has sent"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, replay(t, c.falsify(readTrace(t, c.trace))), c.finds)
		})
	}
}

// timeout is that of sessions: no session ends because of the pauses between steps.
const timeout = 10 * time.Hour

// dir is the path of the lock.
const dir = "/line"

// A play is one trace with the servers and clients that follow it.
type play struct {
	t         *testing.T
	server    *recipestest.Server
	follower  *embedded.Follower
	operator  *zk.Conn
	calls     [3][]*call  // of each contender; the first one has begun, or is to begin next
	names     []string    // of the nodes, by number
	committed []time.Time // when the leader has executed each transaction of the model
	token     int64       // of the latest holder
}

// A call of Lock has a client of its own.
type call struct {
	client  *protocol.Client
	session *protocol.Session
	gate    *gate
	cancel  context.CancelFunc // nil before the call
	out     chan result
	result  *result // once Lock has returned
	next    string  // what the contender does next
	blocker int     // the node that it waits for
}

type result struct {
	lease *lock.Lease
	err   error
}

// replay returns where the code does not follow the trace.
func replay(t *testing.T, all []step) (diverged error) {
	slow := recipestest.WithConfigFunc(func(cfg *embedded.Config) {
		cfg.MinSessionTimeout, cfg.MaxSessionTimeout = time.Second, timeout
	})
	recipestest.Bubble(t, func(t *testing.T, server *recipestest.Server) {
		p := &play{t: t, server: server, follower: server.Embedded().Follower()}
		p.begin(all)
		defer p.end()
		for i, s := range all {
			err := p.take(s)
			settle()
			if err == nil {
				err = p.compare(s)
			}
			if err != nil {
				diverged = fmt.Errorf("step %d, %s: %w", i+1, s, err)
				return
			}
		}
	}, slow)
	return diverged
}

// settle waits until nothing more happens. Transactions of different steps have different times.
func settle() {
	synctest.Wait()
	time.Sleep(time.Millisecond)
	synctest.Wait()
}

// begin connects all clients, and lets nothing pass any more.
func (p *play) begin(all []step) {
	p.operator = p.server.Conn(p.t)
	_, err := p.operator.Create(dir, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(p.t, err)
	for _, s := range all {
		if s.what == "Enter" {
			g := &gate{leader: p.server.Embedded().Dial, opened: true}
			client := p.server.Client(p.t, protocol.WithDialer(g.Dial), protocol.WithSessionTimeout(timeout),
				protocol.WithBackOff(func() backoff.BackOff { return &backoff.ZeroBackOff{} }))
			session, err := client.Session(p.t.Context())
			require.NoError(p.t, err)
			c := &call{client: client, session: session, gate: g, out: make(chan result, 1), next: "idle"}
			p.calls[s.who] = append(p.calls[s.who], c)
			p.t.Cleanup(g.open)
		}
	}
	settle()
	for _, c := range slices.Concat(p.calls[:]...) {
		c.gate.close()
	}
	settle()
	p.follower.Lag(1000 * timeout)
}

// end ends all calls, and lets everything pass.
func (p *play) end() {
	p.follower.Lag(0)
	for _, c := range slices.Concat(p.calls[:]...) {
		if c.cancel != nil {
			c.cancel()
		}
		c.gate.open()
	}
	settle()
	for _, c := range slices.Concat(p.calls[:]...) {
		if c.holds() {
			c.result.lease.Unlock(context.Background())
		}
	}
}

// take makes one step.
func (p *play) take(s step) error {
	if s.who == len(p.calls) {
		return p.serve(s)
	}
	c := p.of(s.who)
	switch s.what {
	case "Enter":
		if c != nil && c.cancel != nil {
			p.calls[s.who] = append(p.calls[s.who][1:], c)
			c = p.of(s.who)
		}
		return p.enter(c, s.server)
	case "Expired":
		if c == nil || c.next == "idle" {
			return nil // no call goes on
		}
	}
	c.next = s.next

	listing := op(zkwire.OpGetChildren, zkwire.OpGetChildren2)
	switch s.what {
	case "Create":
		p.commit()
		return some(c.gate.pass(true, creates), "request to create a node")
	case "Answer":
		return some(c.gate.answer(false), "answer")
	case "Cut":
		c.gate.cut()
	case "Resume":
		return p.admit(c, s.server)
	case "Refused":
		return p.refused(c)
	case "Sync":
		return some(c.gate.pass(true, op(zkwire.OpSync)), "sync")
	case "Settle":
		if err := some(c.gate.answer(false), "answer to the sync"); err != nil {
			return err
		}
		synctest.Wait()
		return some(c.gate.pass(false, listing), "listing")
	case "List":
		c.blocker = s.number
		c.gate.pass(false, aside)
		return some(c.gate.pass(false, listing), "listing")
	case "Watch":
		return some(c.gate.pass(false, aside), "read of the blocker")
	case "Marker":
		return some(c.gate.pass(false, marker), "watch for the marker")
	case "Event":
		err := some(c.gate.answer(true), "event")
		c.gate.answer(false) // to a request for the marker, which came too late
		return err
	case "Hold":
		return p.hold(c, s.number)
	case "Release":
		lease := c.result.lease
		c.result = nil
		go lease.Unlock(context.Background())
	case "Delete":
		return p.remove(c, s.number)
	case "Cancel":
		c.cancel()
	case "Expired":
		return p.expired(c)
	default:
		return errors.New("the replay does not know this step")
	}
	return nil
}

// of returns the latest call of a contender, or else the first one to come, or nil.
func (p *play) of(who int) *call {
	if len(p.calls[who]) == 0 {
		return nil
	}
	return p.calls[who][0]
}

// serve makes a step of the servers.
func (p *play) serve(s step) error {
	switch s.what {
	case "Apply":
		if s.number > len(p.committed) {
			return fmt.Errorf("the leader has executed %d", len(p.committed))
		}
		p.follower.Lag(time.Since(p.committed[s.number-1]))
		p.follower.Lag(1000 * timeout)
	case "Expire":
		p.commit()
		if c := p.of(s.number); c != nil && c.cancel != nil {
			p.server.ExpireSession(c.session.ID())
		}
	default:
		return errors.New("the replay does not know this step")
	}
	return nil
}

// commit notes that the leader executes the model's next transaction now.
func (p *play) commit() { p.committed = append(p.committed, time.Now()) }

// enter calls Lock.
func (p *play) enter(c *call, server int) error {
	if err := p.admit(c, server); err != nil {
		return err
	}
	settle()
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(context.Background())
	c.next = "creating"
	go func() {
		lease, err := lock.New(c.client, dir).Lock(ctx)
		c.out <- result{lease, err}
	}()
	return nil
}

// admit lets a client connect to a server.
func (p *play) admit(c *call, server int) error {
	dial := p.server.Embedded().Dial
	if server == 2 {
		dial = p.follower.Dial
	}
	if err := c.awaitDial(); err != nil {
		return err
	}
	c.gate.admit(dial)
	settle()
	if !c.gate.connected() {
		return errors.New("the server refuses the session")
	}
	return nil
}

// awaitDial waits until the client dials again, for which it may pause.
func (c *call) awaitDial() error {
	for range 1000 {
		if c.gate.dialling() {
			return nil
		}
		settle()
		time.Sleep(time.Second)
	}
	return errors.New("the client does not dial")
}

// refused lets a client try the follower.
func (p *play) refused(c *call) error {
	if err := c.awaitDial(); err != nil {
		return err
	}
	attempt := c.gate.turnAway(p.follower.Dial)
	settle()
	if !attempt.refused() {
		return errors.New("the follower accepts a session that was told of more than it knows")
	}
	return nil
}

// hold checks the token of a lock that is held.
func (p *play) hold(c *call, n int) error {
	if !c.holds() {
		return errors.New("the lock is not granted")
	}
	if node := c.result.lease.Node(); n > len(p.names) || node != p.names[n-1] {
		return fmt.Errorf("the lock is granted by node %s", node)
	}
	if token := c.result.lease.Token(); token <= p.token {
		return fmt.Errorf("token %#x comes after %#x", token, p.token)
	}
	p.token = c.result.lease.Token()
	return nil
}

// remove lets the request pass that deletes a node. A client that has lost its connection gets
// another one for that.
func (p *play) remove(c *call, n int) error {
	deletes := func(r request) bool {
		return (r.op == zkwire.OpDelete || r.op == zkwire.OpMulti) &&
			strings.TrimSuffix(r.path, protocol.MarkerSuffix) == dir+"/"+p.names[n-1]
	}
	p.commit()
	if c.gate.pass(false, deletes) > 0 {
		return nil
	}
	if c.gate.connected() {
		return errors.New("the node is not being deleted")
	}
	if err := p.admit(c, 1); err != nil {
		return err
	}
	p.committed[len(p.committed)-1] = time.Now()
	return some(c.gate.pass(false, deletes), "deletion")
}

// expired lets the client learn that its session is over. The caller then gives up.
func (p *play) expired(c *call) error {
	c.gate.cut()
	if err := c.awaitDial(); err != nil {
		return err
	}
	c.gate.admit(p.server.Embedded().Dial)
	settle()
	if c.session.Err() == nil {
		return errors.New("the session goes on")
	}
	c.cancel()
	return nil
}

// holds reports whether Lock has returned a lease that is held.
func (c *call) holds() bool {
	select {
	case r := <-c.out:
		c.result = &r
	default:
	}
	return c.result != nil && c.result.err == nil && c.result.lease.Err() == nil
}

// compare holds the leader's tree, and what the contenders do, against the model.
func (p *play) compare(s step) error {
	children, _, err := p.operator.Children(dir)
	if err != nil {
		return err
	}
	slices.SortFunc(children, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
	if s.what == "Create" && len(children) > 0 && !slices.Contains(p.names, children[len(children)-1]) {
		p.names = append(p.names, children[len(children)-1])
	}
	var expected []string
	for i, there := range s.existing {
		if there == '0' {
			continue
		} else if i >= len(p.names) {
			return fmt.Errorf("node %d was not created", i+1)
		}
		expected = append(expected, p.names[i])
	}
	if !slices.Equal(expected, children) {
		return fmt.Errorf("the nodes in line are %q, and not %q", children, expected)
	}

	for who := range p.calls {
		c := p.of(who)
		if c == nil {
			continue
		}
		if err := p.compareCall(c, s.holds[who] == '1'); err != nil {
			return fmt.Errorf("contender %d, %s: %w", who, c.next, err)
		}
	}
	return nil
}

// compareCall holds one call against what the model says that its contender does next.
func (p *play) compareCall(c *call, holds bool) error {
	free := c.next == "free" || c.next == "holding" // the code goes on at once where the model has another step
	if held := c.holds(); held != free || holds != (c.next == "holding") {
		return fmt.Errorf("the lock is held: %v, and in the model: %v", held, free)
	}
	if !c.gate.connected() {
		return nil
	}

	var due func(request) bool // the request that the contender has sent
	switch c.next {
	case "creating":
		due = creates
	case "settling":
		due = op(zkwire.OpSync)
	case "listing":
		due = op(zkwire.OpGetChildren, zkwire.OpGetChildren2)
	case "watching":
		if c.blocker > len(p.names) {
			return fmt.Errorf("node %d was not created", c.blocker)
		}
		due = func(r request) bool { return r.op == zkwire.OpGetData && r.path == dir+"/"+p.names[c.blocker-1] }
	}
	sent := c.gate.waiting()
	if due != nil && !slices.ContainsFunc(sent, due) {
		return fmt.Errorf("it has sent %v", sent)
	}
	if c.next == "waiting" && slices.ContainsFunc(sent, func(r request) bool { return !aside(r) && !marker(r) }) {
		return fmt.Errorf("it does not wait, and has sent %v", sent)
	}
	return nil
}

// some returns an error if nothing has passed.
func some(n int, what string) error {
	if n == 0 {
		return fmt.Errorf("there is no %s", what)
	}
	return nil
}

func op(any ...zkwire.Op) func(request) bool {
	return func(r request) bool { return slices.Contains(any, r.op) }
}

func creates(r request) bool {
	return (r.op == zkwire.OpCreate || r.op == zkwire.OpCreate2) && strings.HasSuffix(r.path, "-lock-")
}

func marker(r request) bool {
	return r.op == zkwire.OpExists && strings.HasSuffix(r.path, protocol.MarkerSuffix)
}

// aside reports whether a request is the read of a node, or sends what no contender waits for.
func aside(r request) bool {
	return r.op == zkwire.OpExists && !marker(r) || r.op == zkwire.OpGetData || r.op == zkwire.OpRemoveWatches
}
