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

// A Client is a process with one ZooKeeper client, and a network of its own.
type Client struct {
	*protocol.Client
	Name string
	Link *recipestest.Link
	Rand *rand.Rand // for this client's choices

	world    *World
	linked   time.Duration // when Link was made
	place    *place
	alive    context.Context // ends with the process, or when all work has taken too long
	kill     context.CancelFunc
	latency  time.Duration
	working  atomic.Int64
	follower *embedded.Follower // the server it is usually connected to

	mu      sync.Mutex    // protects the fields below
	until   time.Time     // the process stands still until then
	ran     chan struct{} // closed when it goes on; nil while it runs
	session int64         // the session granted last
	resume  []byte        // a handshake that resumes the session
	ports   []*port
	servers *rand.Rand // draws the server to dial
	next    func()     // if not nil, moves the link for the next dial
	dead    bool       // no more packets pass
}

// watchRoot sets a watch that never fires, so that the first session always has a watch to set
// again after a reconnect. If the client is a successor, a fault can prevent it.
func (c *Client) watchRoot() {
	for {
		s, err := c.Session(c.world.over)
		if err != nil {
			c.world.Fatal(err)
		}
		if _, _, _, err = s.Conn().GetW("/"); err == nil {
			return
		}
		if !sleep(c.world.over, c.world.Timeout/50) {
			c.world.Fatal(err)
		}
	}
}

// Go runs work as a part of this client, on its own goroutine. The world fails if work returns an
// error or doesn't return in time. Its ctx ends then, or when the process dies.
func (c *Client) Go(work func(ctx context.Context) error) {
	w := c.world
	// A shrunk plan can leave this client out.
	if !w.plan.has(c.Name) {
		return
	}
	// Count the work before its goroutine runs, or the world could end first.
	counts := w.work.begin()
	c.working.Add(1)
	go func() {
		if counts {
			defer w.work.end()
		}
		defer c.working.Add(-1)
		defer w.recovered(c.Name)
		if err := work(c.alive); err != nil && c.alive.Err() == nil {
			w.bench.fail(fmt.Errorf("%s, at %v: %w", c.Name, w.Now(), err))
		}
	}()
}

// Upto draws a duration from [Client.Rand].
func (c *Client) Upto(most time.Duration) time.Duration { return upto(c.Rand, most) }

// Spell draws from [Client.Rand] how long something lasts: often a part of a session timeout, and
// sometimes longer than any session.
func (c *Client) Spell() time.Duration { return c.world.spell(c.Rand) }

// Sleep blocks for d, or until ctx ends. Then it blocks as long as the process stands still.
func (c *Client) Sleep(ctx context.Context, d time.Duration) {
	sleep(ctx, d)
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

// standStill makes the process stand still for d (or longer, if it already does).
func (c *Client) standStill(d time.Duration) (until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()

	until = time.Now().Add(d)
	if c.ran == nil {
		c.ran = make(chan struct{})
	}
	if until.After(c.until) {
		c.until = until
	}
	return until
}

// runOn ends the pause that lasts until then. (If a longer one has begun meanwhile, that goes on.)
// With the zero time it ends any pause.
func (c *Client) runOn(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ran != nil && (until.IsZero() || c.until.Equal(until)) {
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

// Dial is a zk.Dialer over the client's network, for other ZooKeeper clients in the same process.
// Their sessions can go back in time (see [recipestest.Link.Client]).
func (c *Client) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	return c.dial(c.Link.Dial, network, address, timeout)
}

func (c *Client) dialChecked(network, address string, timeout time.Duration) (net.Conn, error) {
	return c.dial(c.Link.DialChecked, network, address, timeout)
}

func (c *Client) dial(through zk.Dialer, network, address string, timeout time.Duration) (net.Conn, error) {
	c.Awake()
	if c.Dead() {
		return nil, errDead
	}
	c.move()
	inner, err := through(network, address, timeout)
	// The process may have been paused or have died while it dialed. (die closes only the ports it
	// finds.)
	c.Awake()
	if err != nil {
		return nil, err
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	if c.dead {
		inner.Close()
		return nil, errDead
	}

	p := &port{Conn: inner, client: c, late: c.servers.IntN(2) == 0}
	c.ports = append(c.ports, p)
	return p, nil
}

// cutTwice resets the client's connections at one of its packets, and again soon after the client
// has connected again. After the first cut the client goes on at the leader. After the second cut
// it goes on at its follower, which has a lag and may not know everything the client has seen.
func (c *Client) cutTwice(f Fault) (done string) {
	r := rand.New(rand.NewPCG(uint64(f.pick), 0))
	first, second := drawAim(r, now, madeNode), drawAim(r, now, madeNode, setWatches, setWatches)

	// The lag is mostly small, so that the follower knows what the client saw before the first cut.
	// Otherwise the follower refuses the client until it has caught up.
	behind := upto(r, c.world.Timeout>>r.IntN(12))

	// Calls that were cut off pause before they go on. Only if they then wait for the connection do
	// their requests come before the requests that set watches again.
	away := upto(r, c.world.Timeout>>r.IntN(6))
	moveTo := func(next *embedded.Follower) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.next = func() { c.Link.Move(next) }
	}

	catchUp := func() { c.follower.Lag(0) }
	c.world.endLater(inTheEnd, c.Link.Heal)
	c.world.endLater(inTheEnd, catchUp)
	c.at(first, func() {
		c.follower.Lag(behind)
		// Aim before the first cut, so that every packet of the next connection counts.
		c.at(second, func() {
			time.AfterFunc(f.Lasts, catchUp)
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

// An aim is one of the client's next packets, counted from a moment.
type aim struct {
	packet int
	from   moment
	read   bool // the client reads everything before that packet; otherwise its last answers may be lost
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

// count returns how often the moment has come. An increase shows with the next packet.
func (m moment) count(l *recipestest.Link) int {
	if m == setWatches {
		return l.Count(recipestest.OpSetWatches)
	}
	return l.Count(recipestest.OpCreate) + l.Count(recipestest.OpMulti)
}

// at calls do at the packet of a, unless the world's faults have ended before.
func (c *Client) at(a aim, do func()) {
	before := a.from.count(c.Link)
	// Look at each packet until the moment has come, and then aim from there.
	step, strike := 1, func() {
		if a.from.count(c.Link) > before {
			a.from = now
		}
		c.at(a, do)
	}
	if a.from == now {
		step, strike = a.packet, func() {
			if a.read {
				time.Sleep(time.Nanosecond) // virtual time: all goroutines run until they block
			}
			if !c.world.isCalm() {
				do()
			}
		}
	}
	disarm := c.Link.At(step, strike)
	c.world.endLater(inTheEnd, func() { disarm() })
}

// move draws the server that is dialed next. One time in four it's the leader.
func (c *Client) move() {
	c.mu.Lock()
	defer c.mu.Unlock()

	// cutTwice decides where its victim goes on.
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

// hangUp closes the connections that are still open. (When zk.Conn finds out that its session has
// expired, it leaves the connection open.)
func (c *Client) hangUp() {
	c.mu.Lock()
	ports := slices.Clone(c.ports)
	c.mu.Unlock()
	// Close takes c.mu (it asks whether the process stands still).
	for _, p := range ports {
		p.Close()
	}
}

// A port is a connection of a process that can stand still. It then holds back everything that is
// written. Writing and closing never block (as with the connections of a Link).
type port struct {
	net.Conn
	client *Client
	answer []byte // to the handshake, as far as it was read
	known  bool   // the whole answer was read
	late   bool   // watches are set again after the requests of waiting calls (see SetReadDeadline)

	mu      sync.Mutex // protects the fields below
	waiting bool       // for the process to go on
	out     []byte     // bytes to write then
	closed  bool
	err     error
}

func (p *port) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	p.client.Awake()
	if !p.known && n > 0 {
		p.answer = append(p.answer, b[:n]...)
		p.known = p.client.connected(p.answer)
	}
	return n, err
}

// SetReadDeadline is called by zk.Conn when it has read the head of the answer to its handshake. By
// then package protocol has seen the whole answer, and wakes calls that wait for the connection. On
// a busy machine their requests can overtake the requests with which zk.Conn sets its watches
// again. Yielding here makes that happen in the simulation too.
func (p *port) SetReadDeadline(t time.Time) error {
	if p.late && p.known {
		p.late = false
		for range 50 { // not Sleep: zk.Conn holds a lock here, so time would stand still
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

// waits reports whether the process stands still. If so, runOn will do the rest. p.mu is held.
func (p *port) waits() bool {
	if !p.waiting && p.client.standsStill() {
		p.waiting = true
		go p.runOn()
	}
	return p.waiting
}

func (p *port) runOn() {
	// Meanwhile Write appends to out.
	p.client.Awake()
	p.mu.Lock()
	defer p.mu.Unlock()

	p.waiting = false
	if len(p.out) > 0 && !p.client.Dead() {
		_, p.err = p.Conn.Write(p.out)
		p.out = nil
	}

	if p.closed {
		p.Conn.Close()
	}
}

var errDead = errors.New("the process is dead")

var errSecond = errors.New("no session to resume")

// resumeAgain moves the session to a second connection for d (a delayed handshake would do the
// same).
func (c *Client) resumeAgain(d time.Duration) error {
	c.mu.Lock()
	resume := c.resume
	c.mu.Unlock()
	if resume == nil {
		return errSecond
	}

	// Dial past the client's link, so that faults of its network can't prevent this.
	second, err := c.world.Server.Dial("tcp", "", time.Second)
	if err != nil {
		return err
	}

	go io.Copy(io.Discard, second)
	time.AfterFunc(d, func() { second.Close() })
	_, err = second.Write(resume)
	return err
}
