package sim

import (
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A Grant is what is held: a lease of a lock, a term of an election, anything
// that its holder can ask whether it has it still. A Node method, if it has one,
// should return the name of its node.
type Grant interface {
	Token() int64
	Err() error
	Done() <-chan struct{}
}

// A Turn is one client's holding of something, as far as it can be told. It belongs to one goroutine.
//
// Something is held for certain at a moment at which its holder has asked
// whether it is, and was told so. It was certainly not held before it was asked for,
// nor after its holder was told that it is over. What was taken by force, that is,
// by a deleted node or an expired session, need not be held from then on, but
// its holder has to be told within two session timeouts.
type Turn struct {
	client    *Client
	grant     Grant
	token     int64
	session   int64
	node      string
	exclusive bool
	shared    bool      // its token is that of others, too
	called    time.Time // it was granted after that
	begun     time.Time // and before that
	held      time.Time // the last moment at which it was held for certain; never before begun but if it is the zero time
	over      time.Time // it was over by then
	lost      bool
}

// turns are the turns of a history.
type turns struct {
	world *World
	what  string
	mu    sync.Mutex // protects all
	all   []*Turn
}

// begin notes a grant. The holder takes notice of it when its process runs.
func (ts *turns) begin(c *Client, called time.Time, g Grant, exclusive bool) *Turn {
	c.Awake()
	t := &Turn{
		client: c, grant: g, token: g.Token(), session: c.sessionID(), exclusive: exclusive,
		called: called, begun: time.Now(),
	}
	if n, ok := g.(interface{ Node() string }); ok {
		t.node = path.Base(n.Node())
	}
	ts.mu.Lock()
	ts.all = append(ts.all, t)
	ts.mu.Unlock()
	t.Holds()
	return t
}

// Holds asks whether the grant is held, when the process runs, and notes that it is.
func (t *Turn) Holds() bool {
	t.client.Awake()
	if t.grant.Err() != nil {
		return false
	}
	t.held = time.Now()
	return true
}

// Keep blocks for d, or less if the grant is lost. Meanwhile it asks again and again.
func (t *Turn) Keep(d time.Duration) {
	end := time.Now().Add(d)
	step := t.client.world.Timeout / 64
	timer := time.NewTimer(0)
	defer timer.Stop()
	for t.Holds() {
		left := time.Until(end)
		if left <= 0 {
			return
		}
		timer.Reset(min(step, left))
		select {
		case <-timer.C:
		case <-t.grant.Done():
		}
	}
}

// End notes that the turn is over, and how giving it back went. It returns err, unless that
// says that the grant was lost before, which is no failure.
func (t *Turn) End(err error) error {
	t.client.Awake()
	t.over = time.Now()
	t.lost = errors.Is(err, protocol.ErrLost)
	w := t.client.world
	w.record.span(t.client.Name, fmt.Sprintf("token %d", t.token), t.begun.Sub(w.began), t.over.Sub(w.began), t.lost)
	if t.lost {
		return nil
	}
	return err
}

// excuse takes off what the turn was held for though it was taken by force, or fails if that cannot be excused.
func (ts *turns) excuse(t *Turn) error {
	w := ts.world
	at, ok := w.forced.since(t)
	if !ok || !at.Before(t.held) {
		return nil
	}
	if late := t.held.Sub(at); late > 2*w.Timeout {
		return fmt.Errorf("%s: %s was not told for %v that it had lost it", ts.what, t, late)
	}
	t.held = at
	if at.Before(t.begun) {
		t.held = time.Time{}
	}
	return nil
}

// settled are the turns as they count.
func (ts *turns) settled() ([]*Turn, error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range ts.all {
		if t.over.IsZero() {
			t.over = time.Now()
		}
		if err := ts.excuse(t); err != nil {
			return nil, err
		}
	}
	return ts.all, nil
}

// certain tells whether the turn was held for certain at some time.
func (t *Turn) certain() bool { return !t.held.IsZero() }

func (t *Turn) String() string {
	since := func(at time.Time) float64 { return at.Sub(t.client.world.began).Seconds() }
	s := fmt.Sprintf("%s with token %d", t.client.Name, t.token)
	if t.certain() {
		s += fmt.Sprintf(" from %.6fs to %.6fs", since(t.begun), since(t.held))
	}
	return s
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
