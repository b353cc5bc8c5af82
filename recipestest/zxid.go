package recipestest

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// A session that resumes on another server names the highest zxid that it has seen, so that a
// server which is behind refuses it. If the session names a smaller zxid, it can read an older
// state after a newer state: it goes back in time. This file checks the clients of a link for that
// (see [Link.Client]).

// An arrival is where an answer ends in the bytes that a client reads from one connection.
type arrival struct {
	end  int64 // counted from the beginning of the connection
	zxid int64
}

// A regression is a handshake that names a smaller zxid than was delivered.
type regression struct {
	session            int64
	claimed, delivered int64
}

// arrive notes that the client can read data from now on. link.mu is held.
func (c *conn) arrive(data []byte) {
	if !c.checked {
		return
	}
	c.arrived += int64(len(data))

	// The first frame is the answer to the handshake, which has no zxid.
	if !c.handshaken {
		c.handshaken = true
		if granted, err := zkwire.ParseConnectResponse(data[4:]); err == nil {
			c.session = granted.SessionID
		}
		return
	}

	if head, ok := zkwire.ParseReplyHeader(data); ok && head.Xid != zkwire.XidPing { // a pong's zxid says nothing of the tree
		c.unread = append(c.unread, arrival{c.arrived, head.Zxid})
	}
}

// took notes that the client reads again, so that it must have handled everything it read before.
// (Until then it may have read two answers together and break the connection on the first, or find
// the connection broken in the middle of an answer.) link.mu is held.
func (c *conn) took() {
	for len(c.unread) > 0 && c.unread[0].end <= c.taken {
		// Before 3.9, events have no zxid: it is -1.
		c.link.seen[c.session] = max(c.link.seen[c.session], c.unread[0].zxid)
		c.unread = c.unread[1:]
	}
}

// review checks a packet that the client sends. If a handshake names a smaller zxid, the test fails
// with the first request over its connection. (A connection that only closes its session needn't
// remember anything.) link.mu is held.
func (c *conn) review(p *packet) {
	switch {
	case !c.checked:
	case p.op == OpConnect:
		asked, err := zkwire.ParseConnectRequest(p.data[4:])
		r := regression{asked.SessionID, asked.LastZxid, c.link.seen[asked.SessionID]}
		if err == nil && r.session != 0 && r.claimed < r.delivered {
			c.regression = &r
		}
	case c.regression != nil && p.op != OpClose && p.op != OpAuth && p.op != OpSASL && p.op != OpPing:
		c.link.report(*c.regression)
		c.regression = nil
	}
}

// report fails the test. l.mu is held.
func (l *Link) report(r regression) {
	l.tb.Errorf("recipestest: session %#x goes back in time: it has resumed with zxid %#x as the last one seen, "+
		"but %#x was delivered to it; %v and %d packets after the link was made",
		r.session, r.claimed, r.delivered, time.Since(l.began), l.packets)
}
