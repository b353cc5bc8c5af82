package recipestest

import (
	"fmt"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// maxTrace is how many packets a trace holds.
const maxTrace = 200

// A trace remembers the latest packets of a link (except pings and their answers).
type trace struct {
	packets []tracedPacket
	next    int // where the next packet goes, once the trace is full
}

type tracedPacket struct {
	at        time.Duration // since the link was made
	conn      int
	direction direction
	op        Op
	xid       int32
	path      string      // of a request or an event
	code      zkwire.Code // of an answer
	size      int
	fate      string
}

func (t *trace) add(p tracedPacket) {
	if len(t.packets) < maxTrace {
		t.packets = append(t.packets, p)
		return
	}
	t.packets[t.next] = p
	t.next = (t.next + 1) % maxTrace
}

func (t *trace) String() string {
	var b strings.Builder
	for i := range t.packets {
		// Once the trace is full, the oldest packet is the next to go.
		p := t.packets[(t.next+i)%len(t.packets)]
		fmt.Fprintf(&b, "%12v  connection %d  ", p.at.Round(time.Microsecond), p.conn)
		switch {
		case p.op == OpEvent:
			fmt.Fprintf(&b, "<- event %s", p.path)
		case p.direction == request:
			fmt.Fprintf(&b, "-> %d %v %s", p.xid, p.op, p.path)
		case p.op == OpConnect:
			b.WriteString("<- connect")
		default:
			fmt.Fprintf(&b, "<- %d %v: %v", p.xid, p.op, p.code)
		}
		fmt.Fprintf(&b, " (%d bytes)", p.size)
		if p.fate != "" {
			fmt.Fprintf(&b, " %s", p.fate)
		}
		b.WriteByte('\n')
	}

	return b.String()
}

// Trace returns the last 200 packets that came to the link, without pings, one a line. A line has
// the time, the connection, the request (its number and path) or the answer (its code), the size,
// and what happened to the packet if it was not passed on. A test that fails logs it.
func (l *Link) Trace() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trace.String()
}

// record adds p to the trace. l.mu is held.
func (l *Link) record(c *conn, p *packet, fate string) {
	if !p.step() {
		return
	}
	t := tracedPacket{
		at: time.Since(l.began), conn: c.number, direction: p.direction, op: p.op, xid: p.xid, size: len(p.data), fate: fate,
	}

	if p.direction == request || p.op == OpEvent {
		t.path = p.path()
	} else if head, ok := zkwire.ParseReplyHeader(p.data); ok && p.op != OpConnect {
		t.code = head.Code
	}
	l.trace.add(t)
}
