package embedded

import (
	"maps"
	"net"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// commit applies a transaction on the leader at once, and on each follower after its lag. With a
// data directory, followers wait until the transaction has reached the disk. commit returns the
// stats of the changed nodes on the leader. They are valid until the next commit.
func (s *Server) commit(x transaction) []stat {
	x.zxid, x.at = s.tree.zxid+1, time.Now()

	s.carryOut(x, s.tree)
	if s.journal != nil {
		s.journal.append(x)
	}
	for _, f := range s.followers {
		f.enqueue(x)
	}

	return s.tree.stats
}

// carryOut applies a transaction to the tree of one server.
func (s *Server) carryOut(x transaction, t *tree) {
	// Cut first, so that a connection gets no events about the end of its own session.
	if x.cut != nil {
		x.cut(t)
	}

	t.zxid, t.stats = x.zxid, t.stats[:0]
	for _, ch := range x.changes {
		t.stats = append(t.stats, t.apply(ch, x.at.UnixMilli()))
	}
}

// A Follower is another server of the same ensemble. It can lag behind its leader, and then its
// clients read and watch the tree as it was some time ago. Their writes and syncs reach the leader
// at once, but are answered only when the follower has caught up with them. The requests of a
// connection are answered in order.
//
// The leader is the [Server] itself. It sees every request and ping when the follower does, so a
// lag expires no session. A client of an expired session can still read until its follower has
// applied the expiry, but its writes fail. A client that has seen later transactions than the
// follower is refused, and must resume its session on another server.
//
// Any goroutine may call its methods.
type Follower struct {
	srv *Server

	// The server's lock protects these.
	tree    *tree
	lag     time.Duration
	log     []transaction // committed, but not applied here yet
	waiting []*conn       // connections with something deferred, oldest first
	stopped bool
	closed  bool
	contact contact
	alive   map[int64]*session // by ID, each session that existed when f was cut off
	hasty   bool               // see AnswerSyncsAtOnce

	address  string       // where it listens, if it does
	listener net.Listener // nil in memory, and while it is unreachable

	reports time.Duration         // time between reports of sessions; 0: each contact is reported at once
	heard   map[*session]struct{} // sessions that have sent something since the last report
	due     time.Duration         // time of the next report; 0 if there is nothing to report
}

// A contact says what a follower still has of the ensemble.
type contact int

const (
	whole    contact = iota
	isolated         // it has lost its leader and hasn't noticed
	deposed          // it was the leader and hasn't noticed that there's another leader
)

// Follower adds a server to the ensemble. It starts with the leader's data, and doesn't lag until
// [Follower.Lag] is called. It stops and resumes with the server (when it resumes, it has caught
// up). It lasts until it or the server is closed.
func (s *Server) Follower() *Follower {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &Follower{srv: s}
	if s.front == nil {
		f.tree = s.tree.clone()
	} else {
		// A follower shows nothing that a crash would take back, so it begins with the state on the
		// disk.
		f.tree, f.log = s.front.tree.clone(), slices.Clone(s.front.log)
	}
	s.followers = append(s.followers, f)
	return f
}

// Dial connects a client to the follower, as [Server.Dial] connects to the leader.
func (f *Follower) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	return f.srv.dial(network, f)
}

// Lag makes the follower apply every transaction d after its leader, including transactions that
// are still waiting. If d is shorter than before, the follower at once applies all transactions
// that have become due. A new follower has a lag of 0.
func (f *Follower) Lag(d time.Duration) {
	f.srv.mu.Lock()
	defer f.srv.mu.Unlock()
	f.lag = max(d, 0)
	f.srv.wakeBefore(f.catchUp(time.Since(f.srv.started)))
}

// Isolate cuts the follower off from its leader, until [Follower.Rejoin]. Like a real follower that
// hasn't noticed, it goes on answering reads and pings from its own state. If a connection sends
// anything else, or opens or resumes a session, it gets no more answers. The leader gets no reports
// of the follower's sessions, so they expire in time.
func (f *Follower) Isolate() { f.cutOff(isolated) }

// Depose is [Follower.Isolate] for a server that still believes it is the leader: it also answers
// syncs. It resumes all sessions that existed when it was deposed (even if they have ended since).
// To any other session it says that the session has expired. It opens no sessions, and its writes
// are never committed. Meanwhile the [Server] is the new leader.
//
// A real leader notices within a few ticks that it has lost its quorum, and cuts its clients off.
// Here, call [Follower.Rejoin] for that.
func (f *Follower) Depose() { f.cutOff(deposed) }

func (f *Follower) cutOff(now contact) {
	f.srv.mu.Lock()
	defer f.srv.mu.Unlock()
	f.contact = now
	// Reports that are still due can't reach the leader.
	clear(f.heard)
	f.alive = maps.Clone(f.srv.sessions)
}

// AnswerSyncsAtOnce makes the follower answer syncs as soon as it has applied every transaction
// that any follower has applied. (A leader does the same if it runs with
// zookeeper.forward_learner_requests_to_commit_processor_disabled=true, in 3.7 and later.) So a
// sync is no fence: if a session sends a write through another member, moves here before the
// answer, and syncs, the write can take effect after the sync. Requests of one connection still
// wait for each other.
//
// The lag of the followers is the time that a write takes to commit, so all of them should lag by
// the same time.
func (f *Follower) AnswerSyncsAtOnce() {
	f.srv.mu.Lock()
	defer f.srv.mu.Unlock()
	f.hasty = true
}

// syncTo returns the zxid that a sync of c waits for.
func (s *Server) syncTo(c *conn) int64 {
	f := c.follower
	if f == nil || f.contact != deposed && !f.hasty {
		return s.tree.zxid
	}

	zxid := f.tree.zxid
	if f.contact == whole {
		for _, other := range s.followers {
			zxid = max(zxid, other.tree.zxid)
		}
	}

	// The sync's answer must not overtake earlier answers of its connection.
	for _, before := range c.deferred {
		zxid = max(zxid, before.after)
	}
	return zxid
}

// Rejoin makes the follower find its leader. It cuts the follower's connections, and the follower
// applies the transactions it has missed. Without [Follower.Isolate] or [Follower.Depose] it does
// nothing.
func (f *Follower) Rejoin() {
	s := f.srv
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.contact == whole {
		return
	}

	f.contact = whole
	f.dropAll()
	s.wakeBefore(f.catchUp(time.Since(s.started)))
}

// Report makes the follower report its live sessions to the leader only at every multiple of d
// since the server's start. (A real follower does that twice a tick.) The timeouts of these
// sessions begin again with the report. With 0, the default, the leader knows at once.
func (f *Follower) Report(d time.Duration) {
	f.srv.mu.Lock()
	defer f.srv.mu.Unlock()
	f.reports = max(d, 0)
	if f.reports == 0 {
		f.report(never)
	}
}

// hear notes that a session has sent something.
func (f *Follower) hear(ss *session) {
	switch {
	case f.contact != whole:
	case f.reports == 0:
		f.srv.touch(ss)
	default:
		if f.heard == nil {
			f.heard = make(map[*session]struct{})
		}
		f.heard[ss] = struct{}{}
		if f.due == 0 {
			f.due = (time.Since(f.srv.started)/f.reports + 1) * f.reports
		}
		f.srv.wakeBefore(f.due)
	}
}

// report reports the sessions to the leader if that is due, and returns when the next report is
// due.
func (f *Follower) report(now time.Duration) (next time.Duration) {
	switch {
	case f.due == 0:
		return never
	case f.due > now:
		return f.due
	}

	f.due = 0
	for ss := range f.heard {
		// The session may have ended since it was heard.
		if f.srv.sessions[ss.id] == ss {
			f.srv.touch(ss)
		}
	}

	clear(f.heard)
	return never
}

// answers reports whether the follower can answer a request without its leader.
func (f *Follower) answers(op zkwire.Op) bool {
	return f.contact == whole || !forwarded(op) && (op != zkwire.OpSync || f.contact == deposed)
}

// Close cuts the follower's connections and refuses new ones. A second call does nothing.
func (f *Follower) Close() {
	s := f.srv
	s.mu.Lock()
	defer s.mu.Unlock()
	f.closed = true
	f.closeListener()
	s.followers = slices.DeleteFunc(s.followers, func(other *Follower) bool { return other == f })
	f.dropAll()
}

func (f *Follower) dropAll() {
	for _, c := range f.srv.connections() {
		if c.tree == f.tree {
			f.srv.drop(c)
		}
	}
}

// enqueue adds a committed transaction to the log.
func (f *Follower) enqueue(x transaction) {
	f.log = append(f.log, x)
	f.srv.wakeBefore(f.catchUp(time.Since(f.srv.started)))
}

// catchUp applies the transactions that are due, and returns when the next transaction is due.
// Times count from the server's start.
func (f *Follower) catchUp(now time.Duration) (next time.Duration) {
	if f.contact != whole {
		return never
	}
	next = never
	done := 0

	for _, x := range f.log {
		if due := x.at.Sub(f.srv.started) + f.lag; due > now {
			next = due
			break
		}
		if x.zxid > f.srv.durable {
			break // the journal will call again
		}

		f.srv.carryOut(x, f.tree)
		// Release after each transaction: an answer must come before the events of later
		// transactions.
		f.waiting = slices.DeleteFunc(f.waiting, (*conn).release)
		done++
	}

	f.log = slices.Delete(f.log, 0, done)
	return next
}

// A deferred is an answer or a request of a connection to a lagging follower. An answer waits until
// the follower has applied the transaction that it reflects. A request waits until the answers
// before it were sent.
type deferred struct {
	after   int64  // the zxid to wait for
	answer  []byte // nil for a request
	xid     int32
	op      zkwire.Op
	request []byte
	last    bool // the connection ends afterwards
}

// size is how many bytes h counts against the limit of a connection.
func (h deferred) size() int { return len(h.answer) + len(h.request) }

// postpone defers h. If too much is deferred, it ends the connection. The caller holds the server's
// lock.
func (c *conn) postpone(h deferred) {
	if c.deferredSize += h.size(); c.deferredSize > maxUnsent {
		c.srv.drop(c)
		return
	}

	if len(c.deferred) == 0 {
		c.follower.waiting = append(c.follower.waiting, c)
	}
	c.deferred = append(c.deferred, h)
}

// release sends the answers and executes the requests that no longer have to wait. It reports
// whether that was all. The caller holds the server's lock.
func (c *conn) release() (all bool) {
	for len(c.deferred) > 0 && c.deferred[0].after <= c.tree.zxid {
		h := c.deferred[0]
		c.deferred = c.deferred[1:]
		c.deferredSize -= h.size()

		again := true
		if h.answer != nil {
			c.send(h.answer)
		} else {
			again = c.srv.answerRead(c, h.xid, h.op, &decoder{zkwire.Decoder{Rest: h.request}})
		}

		if !again || h.last {
			c.deferred = nil
			c.endWhenSent()
		}
		// The caller holds the server's lock, so it can't write itself.
		c.startWriting()
	}

	return len(c.deferred) == 0
}
