package recipestest

import (
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A Link is a network between clients and one server, and a test can break it. Other links, and
// clients that don't use this link, are not affected.
//
// It carries packets, not bytes: every fault hits a packet or falls between two. All methods may be
// called from any goroutine, including a function given to [Link.At]. None of them blocks except
// [Link.Dial] and [Link.Client].
//
// A link works over TCP and in memory. It also works inside a testing/synctest bubble, if its
// server was started in that bubble with [WithInMemory]. Its clients speak the plain ZooKeeper
// protocol, even if the server was started [WithTLS].
type Link struct {
	tb     testing.TB
	server *Server
	began  time.Time
	healed chan struct{}  // closed by healForGood, which ends delays
	wg     sync.WaitGroup // the goroutines of all connections

	mu         sync.Mutex // protects the fields below and the state of every conn; never held while blocking
	conns      map[*conn]struct{}
	refusing   bool
	muted      [2]bool // by direction
	leaderless bool
	over       bool // the test has ended, so there are no more faults
	closed     bool
	delay      time.Duration
	follower   *embedded.Follower // nil if the link leads to the server itself
	losing     map[Op]int
	tearing    map[tear]int // how many bytes pass
	failing    []*failure
	triggers   []*trigger
	packets    int
	requests   counter // requests passed on
	written    counter // requests written to the server
	replies    counter
	seen       map[int64]int64 // the greatest zxid delivered, by session, over checked connections
	dialled    int             // connections
	trace      trace
}

// A failure is an error with which the server answers requests.
type failure struct {
	op   Op
	path string
	code zkwire.Code
	n    int // how many requests are left
	part int // the number (from 1) of the operation that fails in a transaction; 0 for the whole transaction
}

type trigger struct {
	at int // runs when Link.packets reaches it
	do func([]string)
}

// Link returns a new, sound network between tb's clients and the server. When tb ends, the link is
// healed for good. After the checks it is closed with all its connections.
func (s *Server) Link(tb testing.TB) *Link {
	tb.Helper()
	l := &Link{
		tb:      tb,
		server:  s,
		began:   time.Now(),
		healed:  make(chan struct{}),
		conns:   make(map[*conn]struct{}),
		losing:  make(map[Op]int),
		tearing: make(map[tear]int),
		seen:    make(map[int64]int64),
	}

	s.mu.Lock()
	s.faulty = true
	s.mu.Unlock()
	r := s.resourcesOf(tb)
	r.mu.Lock()
	defer r.mu.Unlock()

	r.links = append(r.links, l)
	return l
}

// Dial connects to the server through the link. It is a zk.Dialer, so any go-zookeeper client can
// use the link with zk.WithDialer(link.Dial). It blocks until the server's own network has accepted
// the connection, for at most timeout. While the link is cut it fails at once with ECONNREFUSED.
func (l *Link) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	return l.dial(network, address, timeout, false)
}

// DialChecked is [Link.Dial] for sessions that must not go back in time: the link checks them as it
// does for [Link.Client]. (The sessions of a plain zk.Conn can go back.)
func (l *Link) DialChecked(network, address string, timeout time.Duration) (net.Conn, error) {
	return l.dial(network, address, timeout, true)
}

func (l *Link) dial(network, address string, timeout time.Duration, check bool) (net.Conn, error) {
	if c := l.dialStalled(network, address); c != nil {
		return c, nil
	}

	if l.refuses() {
		return nil, refusal(network, address)
	}

	server, err := l.dialServer(network, address, timeout)
	if err != nil {
		return nil, err
	}

	c := newConn(l, server, network, address)
	c.checked = check
	// The link may have been cut while the server accepted.
	if !l.add(c) {
		hangUp(server)
		return nil, refusal(network, address)
	}

	return c, nil
}

// dialServer connects to the server at the other end.
func (l *Link) dialServer(network, address string, timeout time.Duration) (net.Conn, error) {
	l.mu.Lock()
	follower := l.follower
	l.mu.Unlock()
	if follower != nil {
		return l.server.tls.over(follower.Dial)(network, address, timeout)
	}
	return l.server.Dial(network, address, timeout)
}

// dialStalled returns a connection without a server, if no packets pass at all. Heal resets it.
func (l *Link) dialStalled(network, address string) net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.refusing || l.closed || !l.silent() {
		return nil
	}

	c := newConn(l, nil, network, address)
	l.conns[c] = struct{}{}
	return c
}

func (l *Link) refuses() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refusing || l.closed
}

// add starts the goroutines of c. It returns false if the link was cut while c was being dialed.
func (l *Link) add(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.refusing || l.closed {
		return false
	}

	l.conns[c] = struct{}{}
	l.dialled++
	c.number = l.dialled
	l.wg.Go(c.carryRequests)
	l.wg.Go(c.receiveReplies)
	l.wg.Go(c.carryReplies)
	return true
}

// Cut breaks the network so that both sides notice: every connection is reset, and dialing is
// refused until [Link.Heal]. Packets that are under way are lost. Cut followed by Heal is a blip:
// all connections break, and new connections work. Cut ends a stall.
func (l *Link) Cut() {
	var victims []net.Conn
	l.set(func() {
		l.refusing = true
		l.muted, l.leaderless = [2]bool{}, false
		victims = l.resetAll()
	})
	// Closing can block, so it comes after l.mu is released.
	hangUp(victims...)
}

// Stall breaks the network so that neither side notices. Connections stay open and accept writes,
// but nothing arrives in either direction (not even a hang-up) until [Link.Heal]. Dialing succeeds,
// but no answer comes (as from a host whose kernel answers for a hanging process). Stall ends a
// cut.
//
// Heal resets the connections that lost a packet or were dialed during the stall, because TCP can't
// go on with a gap. Idle connections go on. So a stall is like a path that has lost the state of a
// connection: a failed firewall or NAT gateway, for example, or a host that lost power. For a path
// that is only slow, use [Link.Delay].
func (l *Link) Stall() { l.mute(request, reply) }

// StallRequests is [Link.Stall] for the way to the server. Replies and watch events still arrive.
// Handshakes of connections that are dialed meanwhile get no answer. StallRequests and
// [Link.StallReplies] together are Stall.
func (l *Link) StallRequests() { l.mute(request) }

// StallReplies is [Link.Stall] for the way back. The server executes all requests, considers the
// session alive, and opens or resumes sessions for new connections. But the client receives
// nothing. StallReplies and [Link.StallRequests] together are Stall.
func (l *Link) StallReplies() { l.mute(reply) }

// Isolate makes the server behind the link look as if it had lost its leader and hadn't noticed
// yet: it answers pings and nothing else until [Link.Heal], not even handshakes. No server gets
// news of the sessions, so they expire in time. Isolate ends a cut.
//
// Heal resets the connections that lost a packet (a follower that looks for a new leader does the
// same). A real follower would also answer reads with its own state. This follower doesn't.
func (l *Link) Isolate() {
	l.set(func() {
		l.refusing = false
		l.leaderless = true
	})
}

// Move makes connections that are dialed from now on lead to a follower of the server. With nil
// they lead to the server itself (the default). Open connections stay, so Cut and Heal are needed
// to move all clients. When the test ends, the follower stops lagging.
func (l *Link) Move(f *embedded.Follower) {
	l.set(func() { l.follower = f })
}

func (l *Link) mute(directions ...direction) {
	l.set(func() {
		l.refusing = false
		for _, d := range directions {
			l.muted[d] = true
		}
	})
}

// silent reports whether no packets pass at all. l.mu is held.
func (l *Link) silent() bool { return l.muted[request] && l.muted[reply] }

// Heal ends a cut, a stall or an isolation: dialing works, and connections that lost a packet
// meanwhile are reset. [Link.LoseReply], [Link.At] and [Link.Delay] stay in effect.
func (l *Link) Heal() {
	l.mu.Lock()
	victims := l.heal()
	l.mu.Unlock()
	hangUp(victims...)
}

// heal is Heal with l.mu held. The caller must hang up the connections that it returns.
func (l *Link) heal() []net.Conn {
	l.refusing = false
	l.muted, l.leaderless = [2]bool{}, false
	return l.resetMatching(func(c *conn) bool { return c.lossy })
}

// LoseReply loses the replies to the next n requests of kind op, after the server has executed
// them. A reply is dropped when it comes to the link, and its connection is reset (which is how TCP
// loses a reply). [OpAny] means any operation, [OpConnect] the handshake, [OpEvent] watch events.
// Another call with the same op replaces n, and 0 ends the fault. A reply that a stall swallows
// doesn't count.
func (l *Link) LoseReply(op Op, n int) {
	l.set(func() { l.losing[op] = max(n, 0) })
}

// A tear is a packet that TearRequest or TearReply waits for.
type tear struct {
	direction direction
	op        Op
}

// TearRequest breaks the connection in the middle of the next request of kind op. The first bytes
// of its frame reach the server (at most all but one), and then the end of the stream. The server
// doesn't execute the request, and the client finds the connection reset. [OpAny] means any
// operation, [OpConnect] the handshake. Another call with the same op replaces bytes, and 0 ends
// the fault. A request that a stall swallows doesn't count.
func (l *Link) TearRequest(op Op, bytes int) {
	l.set(func() { l.tearing[tear{request, op}] = bytes })
}

// TearReply is [Link.TearRequest] for the reply to a request that the server executes. The client
// receives the first bytes of the frame, and then the end of the stream. [OpEvent] means watch
// events.
func (l *Link) TearReply(op Op, bytes int) {
	l.set(func() { l.tearing[tear{reply, op}] = bytes })
}

// Fail makes the server answer the next n requests of kind op about the node at path with an error
// code of ZooKeeper (-102 for no permission, -101 for no node, -4 for a lost connection). The
// server doesn't execute them. An empty path means any node. For a sequential node, give the path
// without its number. A transaction is about the nodes of all its operations. [OpAny] means any
// operation. Handshakes, pings, watch events and the end of a session can't fail.
//
// Another call with the same op and path replaces code and n. n = 0 ends the fault, and so does the
// end of the test.
func (l *Link) Fail(op Op, path string, code int32, n int) {
	if path != "" {
		_, chroot := l.server.addresses()
		path = chroot + path
	}
	l.set(func() {
		l.failing = slices.DeleteFunc(l.failing, func(f *failure) bool { return f.op == op && f.path == path })
		if n > 0 {
			l.failing = append(l.failing, &failure{op: op, path: path, code: zkwire.Code(code), n: n})
		}
	})
}

// FailPart makes the server refuse the next transaction of at least part operations, as if
// operation number part (the first is 1) had failed with an error code. The server doesn't execute
// the transaction. Fail with [OpMulti] answers with only the error, like a server that refuses a
// whole transaction. FailPart answers with a result for each operation: success before the failed
// operation, and -2 (runtime inconsistency) after it.
//
// Each further call refuses one more transaction. The end of the test ends the fault.
func (l *Link) FailPart(part int, code int32) {
	l.set(func() {
		l.failing = append(l.failing, &failure{op: OpMulti, code: zkwire.Code(code), n: 1, part: part})
	})
}

// fails returns the error with which Fail makes the server answer a request, and counts the
// request.
func (l *Link) fails(p *packet) (code zkwire.Code, part int) {
	if !p.op.ordinary() || p.op == OpClose {
		return zkwire.CodeOK, 0
	}
	for i, f := range l.failing {
		if (f.op == p.op || f.op == OpAny) && (f.path == "" || p.names(f.path)) && (f.part == 0 || f.part <= len(p.parts())) {
			if f.n--; f.n == 0 {
				l.failing = slices.Delete(l.failing, i, i+1)
			}
			return f.code, f.part
		}
	}

	return zkwire.CodeOK, 0
}

// Delay makes every packet take d, in each direction, so that a round trip takes 2d longer. Packets
// keep their order and their pipelining: if they are sent together they arrive together. Delay
// applies to packets sent from now on (even pings), but not to dialing. A packet that is under way
// when the link is cut or stalled is lost.
func (l *Link) Delay(d time.Duration) {
	l.set(func() { l.delay = d })
}

// At calls do when packet number step from now (the first is 1) has come to the link, before it is
// passed on. Requests, replies, watch events and handshakes are counted together. Pings and their
// answers aren't counted. So a loop over step hits an operation at each of its steps:
//
//	for step := 1; ; step++ {
//		stop := link.At(step, link.Cut)
//		err := operation()
//		if stop() {
//			break // it takes fewer steps
//		}
//		link.Heal()
//		// ... check what must be true now
//	}
//
// do decides what happens to the packet: after a Cut it is lost with its connection, after a Stall
// it vanishes, and otherwise it is delivered. do runs on a goroutine of the link. Later packets of
// the same connection and direction wait for do, and other packets don't.
//
// stop disarms the trigger. It returns true if do hasn't run and never will.
func (l *Link) At(step int, do func()) (stop func() bool) {
	return l.Meet(step, func([]string) { do() })
}

// Meet is [Link.At] for a do that must know the packet. A request has one operation ("setData
// /path"), and a transaction has several. A reply is "answer to setData", and a watch event is
// "event at /path". Paths include the server's chroot.
func (l *Link) Meet(step int, do func(operations []string)) (stop func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	t := &trigger{at: l.packets + step, do: do}
	l.triggers = append(l.triggers, t)
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		before := len(l.triggers)
		l.triggers = slices.DeleteFunc(l.triggers, func(other *trigger) bool { return other == t })
		return len(l.triggers) < before
	}
}

// Packets returns how many packets [Link.At] would have counted since the link was made. Lost
// packets count.
func (l *Link) Packets() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.packets
}

// Count returns how many requests of kind op were passed on to the server since the link was made.
// The difference of two Count([OpAny]) is the number of round trips in between (unless requests
// were pipelined).
func (l *Link) Count(op Op) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests.count(op)
}

// Events returns how many watch events were delivered since the link was made.
func (l *Link) Events() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.replies.count(OpEvent)
}

// Sent returns a channel that is closed once n requests of kind op were written to the server since
// the link was made. The server may not have executed the last of them yet.
func (l *Link) Sent(op Op, n int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written.reached(op, n)
}

// Answered returns a channel that is closed once n replies to requests of kind op were delivered
// since the link was made. With [OpEvent] it is closed after n watch events.
func (l *Link) Answered(op Op, n int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.replies.reached(op, n)
}

// set changes what the network does, unless the test has ended.
func (l *Link) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		change()
	}
}

// healForGood ends all faults and disarms all triggers. Later faults have no effect. Call it once.
func (l *Link) healForGood() {
	l.mu.Lock()
	// From here on set changes nothing.
	l.over = true
	l.delay = 0
	if l.follower != nil {
		l.follower.Lag(0)
	}

	l.triggers, l.failing = nil, nil
	clear(l.losing)
	clear(l.tearing)
	victims := l.heal()
	l.mu.Unlock()
	close(l.healed)
	hangUp(victims...)
}

// close resets all connections, refuses new ones and waits for the goroutines.
func (l *Link) close() {
	l.mu.Lock()
	l.closed = true
	victims := l.resetAll()
	l.mu.Unlock()
	hangUp(victims...)
	l.wg.Wait()
}

func (l *Link) resetAll() []net.Conn {
	return l.resetMatching(func(*conn) bool { return true })
}

// resetMatching resets the connections that match, and returns their server sides. l.mu is held.
// The caller must hang up the server sides after it has released l.mu.
func (l *Link) resetMatching(match func(*conn) bool) []net.Conn {
	var servers []net.Conn
	for c := range l.conns {
		if match(c) {
			c.reset() // this deletes it
			if c.server != nil {
				servers = append(servers, c.server)
			}
		}
	}

	return servers
}

type decision int

const (
	deliver decision = iota
	drop
	dropAndReset
	tearOff // only p.data passes, and then the connection ends
)

// decide runs the triggers of p, which came to the link over c, and decides whether p passes. If p
// is a reply that passes, decide delivers it to the client.
func (l *Link) decide(c *conn, p *packet) decision {
	// Triggers run without the lock, because they call methods of the link.
	for _, do := range l.due(p) {
		do(l.operations(c, p))
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	switch {
	case c.dead:
		return drop
	case l.muted[p.direction]:
		c.lossy = true
		l.record(c, p, "is lost: stalled")
		return drop
	case l.leaderless && p.direction == request && p.op == OpPing && p.end == nil:
		c.deliver(pong)
		return drop
	case l.leaderless && (p.direction == reply || p.end == nil):
		c.lossy = true
		l.record(c, p, "is lost: no leader")
		return drop
	case p.end != nil:
		return deliver
	case p.direction == request && l.tears(p):
		l.record(c, p, "is torn")
		return tearOff
	case p.direction == request:
		sent := pendingRequest{op: p.op}
		if sent.failure, sent.part = l.fails(p); sent.part > 0 {
			sent.parts = len(p.parts())
		}
		c.pending[p.xid] = sent
		l.requests.add(p.op)
		fate := ""
		if sent.failure != zkwire.CodeOK {
			fate = "is not executed"
		}
		l.record(c, p, fate)
		if sent.failure != zkwire.CodeOK {
			p.data = inPlaceOf(p.xid) // the answer comes in its turn
		}
		return deliver
	}

	// Only now is it known which request the reply answers.
	if sent, ok := c.pending[p.xid]; ok && p.op == opUnknown {
		p.op = sent.op
		delete(c.pending, p.xid)
		if sent.failure != zkwire.CodeOK {
			p.data = sent.refusal(p.data)
		}
	}

	if l.loses(p.op) {
		l.record(c, p, "is lost")
		c.reset()
		return dropAndReset
	}

	if l.tears(p) {
		l.record(c, p, "is torn")
		return tearOff
	}

	l.record(c, p, "")
	c.deliver(p.data)
	l.replies.add(p.op)
	return deliver
}

// operations describes a packet for Meet.
func (l *Link) operations(c *conn, p *packet) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case p.op == OpEvent:
		return []string{"event at " + p.path()}
	case p.direction == reply && p.op == opUnknown:
		return []string{"answer to " + c.pending[p.xid].op.String()}
	case p.direction == reply:
		return []string{"answer to " + p.op.String()}
	case p.op == OpMulti:
		return p.parts()
	}

	return []string{p.op.String() + " " + p.path()}
}

// A pendingRequest was passed on (or, if it must fail, another request was sent in its place).
type pendingRequest struct {
	op          Op
	failure     zkwire.Code
	part, parts int // of a transaction: the number of the operation that fails, and how many there are
}

// inPlaceOf returns a request that changes nothing, with the xid of a request that must fail.
func inPlaceOf(xid int32) []byte {
	frame := zkwire.AppendRequest(nil, zkwire.RequestHeader{Xid: xid, Op: zkwire.OpExists})
	return zkwire.SetLength(append(frame, readRequest("/")...))
}

// refusal turns an answer into an error.
func (r pendingRequest) refusal(frame []byte) []byte {
	head, _ := zkwire.ParseReplyHeader(frame)
	// A transaction that fails in a part has code 0 itself, and a result for each part.
	if head.Code = r.failure; r.part > 0 {
		head.Code = zkwire.CodeOK
	}
	refusal := make([]byte, zkwire.ReplyBody)
	zkwire.PutReplyHeader(refusal, head)
	if r.part == 0 {
		return refusal
	}

	result := func(op int32, done bool, code zkwire.Code) {
		refusal = zkwire.AppendInt32(zkwire.AppendBool(zkwire.AppendInt32(refusal, op), done), int32(code))
	}
	for part := 1; part <= r.parts; part++ {
		code := zkwire.CodeOK
		if part == r.part {
			code = r.failure
		} else if part > r.part {
			code = zkwire.CodeRuntimeInconsistency
		}
		result(int32(zkwire.OpError), false, code)
		refusal = zkwire.AppendInt32(refusal, int32(code))
	}

	result(-1, true, -1)
	return zkwire.SetLength(refusal)
}

// loses reports whether LoseReply asked to lose this reply to op, and counts it.
func (l *Link) loses(op Op) bool {
	// A fault for this very operation comes before a fault for any.
	if l.losing[op] == 0 && op.ordinary() {
		op = OpAny
	}

	if l.losing[op] == 0 {
		return false
	}

	l.losing[op]--
	return true
}

// tears reports whether p ends its connection, and cuts p down to the bytes that pass.
func (l *Link) tears(p *packet) bool {
	t := tear{p.direction, p.op}
	if l.tearing[t] <= 0 && p.op.ordinary() {
		t.op = OpAny
	}

	if l.tearing[t] <= 0 {
		return false
	}

	p.data = p.data[:min(l.tearing[t], len(p.data)-1)]
	delete(l.tearing, t)
	return true
}

// due counts p, and returns the functions to run before it passes.
func (l *Link) due(p *packet) []func([]string) {
	if !p.step() {
		return nil
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	l.packets++
	var due []func([]string)
	l.triggers = slices.DeleteFunc(l.triggers, func(t *trigger) bool {
		if t.at != l.packets {
			return false
		}
		due = append(due, t.do)
		return true
	})

	return due
}

// wrote records that a request was written to the server.
func (l *Link) wrote(op Op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written.add(op)
}

func refusal(network, address string) error {
	return &net.OpError{
		Op:   "dial",
		Net:  network,
		Addr: linkAddr{network, address},
		Err:  os.NewSyscallError("connect", syscall.ECONNREFUSED),
	}
}
