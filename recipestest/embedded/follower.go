package embedded

import (
	"net"
	"slices"
	"time"
)

// A transaction is what all servers of an ensemble carry out, in the order in which the leader has committed it. One
// that has failed changes nothing but the zxid, and neither does the beginning of a session.
type transaction struct {
	zxid    int64
	at      time.Time
	changes []change
	expired *session // its connection goes with it
}

// commit has every server carry out a transaction in its time, the leader at once. It returns what the changes have
// made of their nodes there, which is valid until the next commit.
func (s *Server) commit(x transaction) []stat {
	x.zxid, x.at = s.tree.zxid+1, time.Now()
	s.carryOut(x, s.tree)
	for _, f := range s.followers {
		f.hear(x)
	}
	return s.tree.stats
}

// carryOut carries out a transaction on one server's tree.
func (s *Server) carryOut(x transaction, t *tree) {
	if x.expired != nil && x.expired.conn != nil && x.expired.conn.tree == t {
		s.drop(x.expired.conn)
	}
	t.zxid, t.stats = x.zxid, t.stats[:0]
	for _, ch := range x.changes {
		t.stats = append(t.stats, t.apply(ch, x.at.UnixMilli()))
	}
}

// A Follower is another server of the same ensemble, which may lag behind: whoever is connected to it reads from, and
// watches, the tree as it was some time ago. What they write is committed by the leader at once, and so is what they ask
// to sync with; they are answered when the follower is as far as that. The requests of a connection are
// answered in order.
//
// The leader, which is the [Server] itself, hears of every request and ping of a session when the follower does, and
// expires sessions by that. A session that has expired may go on to read until the follower hears of its end; its writes
// fail. Clients that have seen more than the follower are turned away, and so must go elsewhere to resume.
//
// Its methods may be called from any goroutine.
type Follower struct {
	srv *Server

	// Guarded by the server's lock.
	tree    *tree
	lag     time.Duration
	log     []transaction // committed, and not carried out here yet
	waiting []*conn       // with something held back, in the order in which they began to wait
	closed  bool
}

// Follower adds a server to the ensemble. It knows what its leader knows and does not lag until [Follower.Lag] says so.
// It is stopped and resumed with the server, which it has caught up with then, and lasts until one of them is closed.
func (s *Server) Follower() *Follower {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &Follower{srv: s, tree: s.tree.clone()}
	s.followers = append(s.followers, f)
	return f
}

// Dial is [Server.Dial] for a client of the follower.
func (f *Follower) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	return f.srv.dial(network, f)
}

// Lag has the follower carry out every transaction d after its leader has, also those that it has heard of already: if
// that is less than before it catches up at once. With 0, as in the beginning, it does not lag.
func (f *Follower) Lag(d time.Duration) {
	f.srv.mu.Lock()
	defer f.srv.mu.Unlock()
	f.lag = max(d, 0)
	f.srv.wakeBefore(f.catchUp(time.Since(f.srv.started)))
}

// Close cuts the follower's connections, and refuses new ones. Closing again does nothing.
func (f *Follower) Close() {
	s := f.srv
	s.mu.Lock()
	defer s.mu.Unlock()
	f.closed = true
	s.followers = slices.DeleteFunc(s.followers, func(other *Follower) bool { return other == f })
	for _, c := range s.connections() {
		if c.tree == f.tree {
			s.drop(c)
		}
	}
}

// hear takes note of a transaction.
func (f *Follower) hear(x transaction) {
	f.log = append(f.log, x)
	f.srv.wakeBefore(f.catchUp(time.Since(f.srv.started)))
}

// catchUp carries out what is due and returns when the rest will be. Times are since the server's start.
func (f *Follower) catchUp(now time.Duration) (next time.Duration) {
	next = never
	done := 0
	for _, x := range f.log {
		if due := x.at.Sub(f.srv.started) + f.lag; due > now {
			next = due
			break
		}
		f.srv.carryOut(x, f.tree)
		f.waiting = slices.DeleteFunc(f.waiting, (*conn).release)
		done++
	}
	f.log = slices.Delete(f.log, 0, done)
	return next
}

// A held is what a connection to a follower does when its turn has come: it sends an answer, once the transaction is
// carried out here that the answer tells of, or it carries out a request that came after such a one.
type held struct {
	after   int64
	answer  []byte // nil if it is a request
	xid     int32
	op      opcode
	request []byte
	last    bool // the connection ends with it
}

// size is what it counts for in what a connection may hold back.
func (h held) size() int { return len(h.answer) + len(h.request) }

// hold puts off what is to be done, or ends the connection if that is too much. The caller holds the server's lock.
func (c *conn) hold(h held) {
	if c.heldSize += h.size(); c.heldSize > maxUnsent {
		c.srv.drop(c)
		return
	}
	if len(c.held) == 0 {
		c.follower.waiting = append(c.follower.waiting, c)
	}
	c.held = append(c.held, h)
}

// release does what need not be put off any longer, and reports whether that was all. The caller holds the server's lock.
func (c *conn) release() (all bool) {
	for len(c.held) > 0 && c.held[0].after <= c.tree.zxid {
		h := c.held[0]
		c.held = c.held[1:]
		c.heldSize -= h.size()
		again := true
		if h.answer != nil {
			c.send(h.answer)
		} else {
			again = c.srv.look(c, h.xid, h.op, &decoder{b: h.request})
		}
		if !again || h.last {
			c.held = nil
			c.endWhenSent()
		}
		c.startWriting()
	}
	return len(c.held) == 0
}
