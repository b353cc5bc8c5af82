package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

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
	servers *rand.Rand    // draws which server is dialed
	next    func()        // moves the link for the next dial, instead of a draw
	disarm  []func() bool // what is yet to befall it
	calmed  bool          // nothing is
}

// watchRoot sets a watch that never fires. So the first session has watches to set again after each reconnect, whatever
// it is doing.
func (c *Client) watchRoot() {
	s, err := c.Session(c.world.over)
	if err == nil {
		_, _, _, err = s.Conn().GetW("/")
	}
	if err != nil {
		c.world.Fatal(err)
	}
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

// Dial is a zk.Dialer over the client's network, for clients of another kind in the same process. What their handshakes
// claim to have seen is not checked.
func (c *Client) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	return c.dial(c.Link.Dial, network, address, timeout)
}

func (c *Client) dialStrict(network, address string, timeout time.Duration) (net.Conn, error) {
	return c.dial(c.Link.DialStrict, network, address, timeout)
}

func (c *Client) dial(through zk.Dialer, network, address string, timeout time.Duration) (net.Conn, error) {
	c.Awake()
	c.move()
	inner, err := through(network, address, timeout)
	c.Awake()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &port{Conn: inner, client: c, late: c.servers.IntN(2) == 0}
	c.ports = append(c.ports, p)
	return p, nil
}

// cutTwice resets the client's connections in the midst of whatever it does, and again soon after it is back. Each time
// that is at one of its packets, see aim. The first time the client goes on at the leader. The second time it goes on
// at its follower, which lags behind what the client has seen meanwhile.
func (c *Client) cutTwice(f Fault) (done string) {
	r := rand.New(rand.NewPCG(uint64(f.pick), 0))
	first, second := drawAim(r, now, madeNode), drawAim(r, now, madeNode, setWatches, setWatches)

	// Mostly by so little that the follower knows what the client saw before the first cut. Or it turns the client
	// away until it has caught up.
	behind := upto(r, c.world.Timeout>>r.IntN(12))

	// Calls that were cut off pause before they go on. Only if they then have to wait for the connection do their
	// requests come before those that set watches again.
	away := upto(r, c.world.Timeout>>r.IntN(6))
	moveTo := func(next *embedded.Follower) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.next = func() { c.Link.Move(next) }
	}
	c.at(first, func() {
		c.follower.Lag(behind)
		c.at(second, func() {
			time.AfterFunc(f.Lasts, func() { c.follower.Lag(0) })
			c.Link.Cut()
			moveTo(c.follower)
			c.Link.Heal()
		})
		c.Link.Cut()
		time.AfterFunc(away, func() {
			moveTo(nil)
			c.Link.Heal()
		})
	})
	return fmt.Sprintf("%v for %v, and then %v, %v behind",
		first, away.Round(time.Microsecond), second, behind.Round(time.Microsecond))
}

// An aim is one of a client's next packets, counted from a moment.
type aim struct {
	packet int
	from   moment
	read   bool // everything before that packet is read by the client first; otherwise the last answers may be lost
}

type moment string

const (
	now        moment = "from then"
	madeNode   moment = "after it makes a node"
	setWatches moment = "after it sets its watches again"
)

func drawAim(r *rand.Rand, from ...moment) aim {
	return aim{
		packet: 1 + r.IntN(1<<r.IntN(5)),
		from:   from[r.IntN(len(from))],
		read:   r.IntN(2) == 0,
	}
}

func (a aim) String() string {
	s := fmt.Sprintf("at packet %d %s", a.packet, a.from)
	if a.read {
		s += " once the others are read"
	}
	return s
}

// count returns how often the moment has come, which is seen with the next packet.
func (m moment) count(l *recipestest.Link) int {
	if m == setWatches {
		return l.Count(recipestest.OpSetWatches)
	}
	return l.Count(recipestest.OpCreate) + l.Count(recipestest.OpMulti)
}

// at calls do at one of the next packets, unless the world is calm before.
func (c *Client) at(a aim, do func()) {
	step, strike := a.packet, do
	if a.from != now {
		before := a.from.count(c.Link)
		step, strike = 1, func() {
			if a.from.count(c.Link) > before {
				a.from = now
			}
			c.at(a, do)
		}
	} else if a.read {
		strike = func() {
			time.Sleep(time.Nanosecond) // until all goroutines have nothing left to do
			if !c.isCalm() {
				do()
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.calmed {
		c.disarm = append(c.disarm, c.Link.At(step, strike))
	}
}

func (c *Client) isCalm() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calmed
}

// calm has nothing befall the client any more.
func (c *Client) calm() {
	c.mu.Lock()
	disarm := c.disarm
	c.disarm, c.calmed = nil, true
	c.mu.Unlock()
	for _, stop := range disarm {
		stop()
	}
	c.Link.Heal()
	c.Link.Delay(c.latency)
	c.follower.Lag(0)
	c.Link.LoseReply(recipestest.OpAny, 0)
	c.runOn()
}

// move draws the server that is dialed next: one in four times it is the leader.
func (c *Client) move() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		c.next()
		c.next = nil
		return
	}
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
	late   bool   // calls that wait for the connection come first, see SetReadDeadline

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

// SetReadDeadline is called by zk.Conn when it has read the head of the answer to its handshake. Package protocol, which
// has seen all of it, lets calls go on then that wait for the connection. On a busy machine they may overtake zk.Conn,
// which has yet to set its watches again. Without this they hardly ever would.
func (p *port) SetReadDeadline(t time.Time) error {
	if p.late && p.deaf {
		p.late = false
		for range 50 { // not Sleep, which would wait for those that wait for the lock held here
			runtime.Gosched()
		}
	}
	return p.Conn.SetReadDeadline(t)
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
