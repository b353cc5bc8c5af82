package recipestest

import (
	"encoding/binary"
	"time"
)

// A session that resumes on another server tells it the last zxid that it has seen, so that a server which knows less
// turns it away. One that names too little may read what was, after it has read what came later. What follows checks
// the clients of a link for that. See [Link.DialStrict].

// An arrival is the end of an answer in what a client reads from one connection.
type arrival struct {
	end  int64 // bytes of the connection up to here
	zxid int64
}

// A relapse is a handshake that claims to have seen less than was delivered.
type relapse struct {
	session            int64
	claimed, delivered int64
}

// arrive notes that the client can read data from now on. link.mu is held.
func (c *conn) arrive(data []byte) {
	const head = 4 + 4 + 8 // length, xid, zxid
	if !c.strict || len(data) < head {
		return
	}
	c.arrived += int64(len(data))
	switch xid := int32(binary.BigEndian.Uint32(data[4:])); {
	case !c.welcomed: // length, protocol version, timeout, session
		c.welcomed = true
		if len(data) >= head+4 {
			c.session = int64(binary.BigEndian.Uint64(data[12:]))
		}
	case xid == xidPing: // shows nothing of the tree
	default:
		c.unread = append(c.unread, arrival{c.arrived, int64(binary.BigEndian.Uint64(data[8:]))})
	}
}

// took notes that the client has read n more bytes. An answer counts once the client has all of it: until then it may
// be about to find that the connection is broken, and have seen nothing. link.mu is held.
func (c *conn) took(n int) {
	c.taken += int64(n)
	for len(c.unread) > 0 && c.unread[0].end <= c.taken {
		// Events have no zxid on servers before 3.9: there it is -1.
		c.link.seen[c.session] = max(c.link.seen[c.session], c.unread[0].zxid)
		c.unread = c.unread[1:]
	}
}

// review looks at what the client sends. A handshake that claims too little is a fault as soon as something is asked
// over its connection; one that comes to close the session, on whatever server that is, need not remember anything.
// link.mu is held.
func (c *conn) review(p *packet) {
	const head = 4 + 4 + 8 + 4 + 8 // length, protocol version, zxid, timeout, session
	switch {
	case !c.strict:
	case p.op == OpConnect && len(p.data) >= head:
		session := int64(binary.BigEndian.Uint64(p.data[20:]))
		r := relapse{session, int64(binary.BigEndian.Uint64(p.data[8:])), c.link.seen[session]}
		if session != 0 && r.claimed < r.delivered {
			c.relapse = &r
		}
	case c.relapse != nil && p.op != OpClose && p.op != OpAuth && p.op != OpSASL && p.op != OpPing:
		c.link.report(*c.relapse)
		c.relapse = nil
	}
}

// report fails the test. l.mu is held.
func (l *Link) report(r relapse) {
	l.tb.Errorf("recipestest: session %#x goes back in time: it has resumed saying that it has seen zxid %#x, "+
		"when %#x had been delivered to it; %v and %d packets after the link was made",
		r.session, r.claimed, r.delivered, time.Since(l.began), l.packets)
}
