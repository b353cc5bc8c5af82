package model

import (
	"bufio"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// A gate is the network of one client. While it is open, everything passes. Once it was closed, a
// connection, a request and an answer pass when the replay says so. Handshakes and what sets
// watches again pass with their connection. It is safe for concurrent use.
type gate struct {
	leader zk.Dialer

	mu     sync.Mutex // protects what follows, and the passages
	opened bool
	dials  []chan *passage // that wait
	now    *passage        // the latest connection, which the client may have lost
}

// A passage is one connection through a gate.
type passage struct {
	gate           *gate
	client, server net.Conn
	up, down       [][]byte
	kept           map[int32]bool // answers to these requests wait
	answered       bool           // the server has answered the handshake
	cut            bool           // the client has lost it
	hungUp         bool           // the server has ended it, and the client does not know
}

// Dial is a zk.Dialer. It blocks until the gate lets the client connect.
func (g *gate) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	g.mu.Lock()
	if g.opened {
		defer g.mu.Unlock()
		p := g.connect(g.leader)
		if p == nil {
			return nil, syscall.ECONNREFUSED
		}
		return p.here()
	}
	door := make(chan *passage, 1)
	g.dials = append(g.dials, door)
	g.mu.Unlock()

	p := <-door
	if p == nil {
		return nil, syscall.ECONNREFUSED
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return p.here()
}

// here returns the client's end. The other end is the passage's. The caller holds mu.
func (p *passage) here() (net.Conn, error) {
	here, there := net.Pipe()
	p.client = there
	go p.read(there, func(frame []byte) { p.up = append(p.up, frame) }, func() { p.cut = true })
	go p.read(p.server, func(frame []byte) { p.down = append(p.down, frame) }, func() { p.hungUp = true })
	return here, nil
}

// connect makes a passage to a server. The caller holds mu.
func (g *gate) connect(dial zk.Dialer) *passage {
	c, err := dial("tcp", "", time.Second)
	if err != nil {
		return nil
	}
	g.now = &passage{gate: g, server: c, kept: make(map[int32]bool)}
	return g.now
}

// read takes the frames from one end of a passage.
func (p *passage) read(c net.Conn, arrived func([]byte), ended func()) {
	in := bufio.NewReader(c)
	for {
		frame, err := zkwire.ReadFrame(in, 1<<20)
		p.gate.mu.Lock()
		if err != nil {
			ended()
			p.flow()
			p.gate.mu.Unlock()
			return
		}
		arrived(frame)
		p.flow()
		p.gate.mu.Unlock()
	}
}

// flow passes on all that need not wait. The caller holds mu.
func (p *passage) flow() {
	p.up = slices.DeleteFunc(p.up, func(frame []byte) bool {
		if !p.gate.opened && p.answered && !passes(frame) || p.hungUp {
			return false
		}
		p.server.Write(frame)
		return true
	})
	for len(p.down) > 0 && !p.cut {
		frame := p.down[0]
		head, ok := zkwire.ParseReplyHeader(frame)
		if !p.gate.opened && p.answered && ok && (head.Xid == zkwire.XidEvent || p.kept[head.Xid]) {
			return
		}
		p.down, p.answered = p.down[1:], true
		p.client.Write(frame)
	}
	if p.hungUp && (p.gate.opened || !p.answered) {
		p.client.Close()
	}
}

// passes reports whether a request need not wait.
func passes(frame []byte) bool {
	head, ok := zkwire.ParseRequestHeader(frame)
	return !ok || head.Op == zkwire.OpPing || head.Op == zkwire.OpSetWatches || head.Op == zkwire.OpCloseSession
}

// A request is what waits for the gate.
type request struct {
	op   zkwire.Op
	path string // of its first operation
}

func parse(frame []byte) request {
	head, _ := zkwire.ParseRequestHeader(frame)
	body := frame[zkwire.RequestBody:]
	if head.Op == zkwire.OpMulti && len(body) > 9 {
		body = body[9:] // the header of the first operation
	}
	d := zkwire.Decoder{Rest: body}
	return request{head.Op, d.String()}
}

// waiting returns the requests that wait.
func (g *gate) waiting() (all []request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now != nil {
		for _, frame := range g.now.up {
			all = append(all, parse(frame))
		}
	}
	return all
}

// pass lets the requests pass that match, and returns how many. If keep is set, their answers wait.
func (g *gate) pass(keep bool, match func(request) bool) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.now
	p.up = slices.DeleteFunc(p.up, func(frame []byte) bool {
		if !match(parse(frame)) {
			return false
		}
		head, _ := zkwire.ParseRequestHeader(frame)
		p.kept[head.Xid] = keep
		p.server.Write(frame)
		n++
		return true
	})
	return n
}

// answer lets all answers pass that have waited, and the events before them. With events set, these
// pass alone.
func (g *gate) answer(events bool) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.now
	for len(p.down) > 0 {
		head, _ := zkwire.ParseReplyHeader(p.down[0])
		if event := head.Xid == zkwire.XidEvent; event != events {
			break
		}
		p.client.Write(p.down[0])
		p.down = p.down[1:]
		n++
	}
	p.flow()
	return n
}

// dialling reports whether the client waits to be let through.
func (g *gate) dialling() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.dials) > 0
}

// admit lets the client connect to a server. What waited over an earlier connection never passes.
func (g *gate) admit(dial zk.Dialer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now != nil {
		g.now.server.Close()
	}
	g.dials[0] <- g.connect(dial)
	g.dials = g.dials[1:]
}

// turnAway lets the client dial a server that refuses it. What waits over the earlier connection
// may still pass.
func (g *gate) turnAway(dial zk.Dialer) (attempt *passage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	earlier := g.now
	attempt = g.connect(dial)
	g.now = earlier
	g.dials[0] <- attempt
	g.dials = g.dials[1:]
	return attempt
}

// refused reports whether a server has hung up without an answer.
func (p *passage) refused() bool {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	return p.hungUp && !p.answered
}

// cut ends the connection for the client. What it has sent may still pass.
func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.now; p != nil && !p.cut {
		p.cut, p.down = true, nil
		p.client.Close()
	}
}

// connected reports whether the client has a connection.
func (g *gate) connected() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now != nil && !g.now.cut
}

// close lets nothing pass from now on.
func (g *gate) close() {
	g.mu.Lock()
	g.opened = false
	g.mu.Unlock()
	g.cut()
}

// open lets everything pass.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = true
	for _, door := range g.dials {
		door <- g.connect(g.leader)
	}
	g.dials = nil
	if g.now != nil && g.now.client != nil && !g.now.cut {
		g.now.flow()
	}
}
