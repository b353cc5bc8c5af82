package queue

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A desk serves calls, many of them with one transaction, in a goroutine that lives only while there are any.
type desk struct {
	host  *protocol.Session
	serve func(life context.Context) // until there is no more to do

	mu    sync.Mutex // protects what follows, and what is said to be so of calls
	calls []*call    // those without an outcome, in order
	busy  bool
	space space
	woken chan struct{}
}

// A call is what somebody waits for at a desk.
type call struct {
	ctx     context.Context
	agent   *agent
	items   [][]byte // to be offered
	want    int      // how many entries to remove at most
	wait    bool     // for entries to come
	reserve bool     // rather than remove

	// Protected by the desk until done is closed.
	sent    bool     // in a transaction whose outcome is not known yet
	left    bool     // nobody waits any more
	entries []*entry // that were sent for
	claim   *claim
	ids     []string
	data    [][]byte // of the entries
	err     error
	over    bool
	done    chan struct{}
}

// grace is how long a caller whose ctx has ended is kept for the outcome of what was sent.
const grace = 50 * time.Millisecond

func newDesk(s *protocol.Session, serve func(context.Context)) *desk {
	return &desk{host: s, serve: serve, woken: make(chan struct{}, 1)}
}

// do blocks until c has an outcome or its ctx ends. A call that was not sent by then has no effect. One that was sent is
// left alone after a moment of grace, and do returns an error that wraps ctx's and [protocol.ErrUncertain].
func (d *desk) do(c *call) error {
	c.done = make(chan struct{})
	d.mu.Lock()
	d.calls = append(d.calls, c)
	start := !d.busy
	d.busy = true
	d.mu.Unlock()
	if !start {
		d.wake()
	} else if !d.host.Go(d.serve) {
		d.finishAll(protocol.ErrClosed)
	}
	select {
	case <-c.done:
		return c.err
	case <-c.ctx.Done():
	}
	if !d.leave(c, false) {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-c.done:
		case <-timer.C:
			d.leave(c, true)
		}
	}
	return c.err
}

// leave takes a call back, unless it has an outcome or was sent; with force also then.
func (d *desk) leave(c *call, force bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case c.over:
		return true
	case !c.sent:
		d.end(ended(c.ctx), c)
	case force:
		c.left = true
		if err := ended(c.ctx); c.reserve { // which comes back
			d.end(err, c)
		} else {
			d.end(uncertain(err), c)
		}
	default:
		return false
	}
	d.wake()
	return true
}

// end gives calls their outcome. The caller holds mu.
func (d *desk) end(err error, calls ...*call) {
	for _, c := range calls {
		if !c.over {
			c.over, c.err = true, err
			close(c.done)
		}
	}
	d.calls = slices.DeleteFunc(d.calls, func(c *call) bool { return c.over })
}

func (d *desk) finish(err error, calls ...*call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end(err, calls...)
}

// finishAll ends all calls and with them the goroutine.
func (d *desk) finishAll(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end(err, slices.Clone(d.calls)...)
	d.busy = false
}

// expire ends the calls whose ctx has ended. The caller holds mu.
func (d *desk) expire() {
	for _, c := range slices.Clone(d.calls) {
		if c.ctx.Err() != nil && !c.sent {
			d.end(ended(c.ctx), c)
		}
	}
}

// open returns the calls that wait now. If there are none the goroutine that serves must return.
func (d *desk) open() []*call {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expire()
	d.busy = len(d.calls) > 0
	return slices.Clone(d.calls)
}

// unsend notes that a transaction has not happened. If it was not answered it may have been too large.
func (d *desk) unsend(calls []*call, unknown bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if unknown {
		d.space.halve()
	}
	for _, c := range calls {
		if !c.over {
			c.sent, c.entries = false, nil
		}
	}
}

// wake has whoever serves look again.
func (d *desk) wake() {
	select {
	case d.woken <- struct{}{}:
	default:
	}
}
