package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A Client is a process with one client, and a network of its own.
type Client struct {
	*protocol.Client
	Name string
	Link *recipestest.Link
	Rand *rand.Rand // for what this client does; not safe for concurrent use

	world    *World
	latency  time.Duration
	working  atomic.Int64
	follower *embedded.Follower // the server that it is connected to for the most part

	mu      sync.Mutex // protects what follows
	until   time.Time  // it stands still until then
	ran     chan struct{}
	session int64 // the last that was granted
	resume  []byte
	ports   []*port
	servers *rand.Rand // draws which server is dialed
}

// Go runs work, as part of this client, on a goroutine of its own. Its ctx ends only when
// the world has waited for it in vain, which is a failure by then. An error that it
// returns is one, too.
func (c *Client) Go(work func(ctx context.Context) error) {
	w := c.world
	c.working.Add(1)
	w.work.Go(func() {
		defer c.working.Add(-1)
		defer w.recovered(c.Name)
		if err := work(w.over); err != nil && w.over.Err() == nil {
			w.bench.fail(fmt.Errorf("%s, at %v: %w", c.Name, w.Now(), err))
		}
	})
}

// Upto draws a duration from [Client.Rand].
func (c *Client) Upto(most time.Duration) time.Duration { return upto(c.Rand, most) }

// Spell draws how long something lasts from [Client.Rand]: often a part of a session timeout, sometimes longer than any session.
func (c *Client) Spell() time.Duration { return c.world.spell(c.Rand) }

// Sleep blocks for d, or until ctx ends, and then until the process does not stand still.
func (c *Client) Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	c.Awake()
}

// Awake blocks while the process stands still.
func (c *Client) Awake() {
	for {
		c.mu.Lock()
		ran := c.ran
		c.mu.Unlock()
		if ran == nil {
			return
		}
		<-ran
	}
}

// Note puts a remark on the timeline.
func (c *Client) Note(format string, args ...any) {
	c.world.record.note(c.world.Now(), c.Name, fmt.Sprintf(format, args...))
}

// standStill has the process do so for d. Longer ones go on.
func (c *Client) standStill(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	until := time.Now().Add(d)
	if c.ran == nil {
		c.ran = make(chan struct{})
	} else if until.Before(c.until) {
		return
	}
	c.until = until
	time.AfterFunc(d, func() { c.runOnAt(until) })
}

func (c *Client) runOnAt(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ran != nil && c.until.Equal(until) {
		close(c.ran)
		c.ran = nil
	}
}

func (c *Client) runOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ran != nil {
		close(c.ran)
		c.ran = nil
	}
}

func (c *Client) standsStill() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ran != nil
}

func (c *Client) sessionID() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// Dial is a zk.Dialer over the client's network, for clients of another kind in the same process.
func (c *Client) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	c.Awake()
	c.move()
	inner, err := c.Link.Dial(network, address, timeout)
	c.Awake()
	if err != nil {
		return nil, err
	}
	p := &port{Conn: inner, client: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ports = append(c.ports, p)
	return p, nil
}

// move draws the server that is dialed next: one in four times it is the leader.
func (c *Client) move() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.servers.IntN(4) == 0 {
		c.Link.Move(nil)
	} else {
		c.Link.Move(c.follower)
	}
}

// hangUp closes what is open still: zk.Conn forgets a connection over which it hears that its session has expired.
func (c *Client) hangUp() {
	c.mu.Lock()
	ports := slices.Clone(c.ports)
	c.mu.Unlock()
	for _, p := range ports {
		p.Close()
	}
}

// A port is a connection of a process that may stand still, and holds back then what is written. Writing and closing
// never block, and neither do they on the connections of a Link.
type port struct {
	net.Conn
	client *Client
	heard  []byte // the answer to the handshake, as far as it was read
	deaf   bool   // nothing more to hear

	mu      sync.Mutex // protects what follows
	waiting bool       // for the process to run on
	out     []byte     // what is to be written then
	closed  bool
	err     error
}

func (p *port) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	p.client.Awake()
	if !p.deaf && n > 0 {
		p.heard = append(p.heard, b[:n]...)
		p.deaf = p.client.greeted(p.heard)
	}
	return n, err
}

func (p *port) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.err != nil:
		return 0, p.err
	case p.closed:
		return 0, net.ErrClosed
	case p.waits():
		p.out = append(p.out, b...)
		return len(b), nil
	}
	return p.Conn.Write(b)
}

func (p *port) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return net.ErrClosed
	}
	p.closed = true
	if p.waits() {
		return nil
	}
	return p.Conn.Close()
}

// waits reports whether the process stands still, and sees to it that what is left until it runs on is done then. p.mu is held.
func (p *port) waits() bool {
	if !p.waiting && p.client.standsStill() {
		p.waiting = true
		go p.runOn()
	}
	return p.waiting
}

func (p *port) runOn() {
	p.client.Awake()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = false
	if len(p.out) > 0 {
		_, p.err = p.Conn.Write(p.out)
		p.out = nil
	}
	if p.closed {
		p.Conn.Close()
	}
}

var errSecond = errors.New("the session has no connection to double")

// resumeAgain takes the session over to a second connection, as a handshake does that was on its way for long, and
// holds that for d.
func (c *Client) resumeAgain(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	resume := c.resume
	c.mu.Unlock()
	if resume == nil {
		return errSecond
	}
	second, err := c.world.Server.Dial("tcp", "", time.Second)
	if err != nil {
		return err
	}
	go io.Copy(io.Discard, second)
	time.AfterFunc(d, func() { second.Close() })
	_, err = second.Write(resume)
	return err
}
