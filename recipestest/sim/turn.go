package sim

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A Grant is what is held, like the lease of a lock or the term of an election. Its holder can ask
// whether it is still held. A Node method, if there is one, should return the name of its node.
// Without it, that is the node of a Check method like those of the recipes.
type Grant interface {
	Token() int64
	Err() error
	Done() <-chan struct{}
}

// A Turn is the time during which one client holds something, as far as it is known. It belongs to
// one goroutine.
//
// A grant is held for certain at a moment when its holder asks and hears that it is. It is
// certainly not held before the call that asked for it, nor after its holder has learned of its
// end. A grant that was ended by force, by a deleted node or an expired session, need not be held
// from then on. But its holder must notice that within four round trips and a tenth of a second if
// the client's events say that it held something with that token and there is no other fault, and
// within two session timeouts otherwise.
type Turn struct {
	client    *Client
	grant     Grant
	token     int64
	session   int64
	node      string
	exclusive bool
	shared    bool      // other turns have the same token
	called    time.Time // the grant came after this
	begun     time.Time // and before this
	held      time.Time // when it was last held for certain: not before begun, or the zero time
	over      time.Time // the grant had ended by then
	lost      bool
	until     time.Time // it is kept until then; of World.held
}

// turns are the turns of a history.
type turns struct {
	world *World
	what  string
	mu    sync.Mutex // protects all
	all   []*Turn
}

// begin notes a grant, once the process of its holder runs.
func (ts *turns) begin(c *Client, called time.Time, g Grant, exclusive bool) *Turn {
	c.Awake()
	t := &Turn{
		client: c, grant: g, token: g.Token(), session: c.sessionID(), exclusive: exclusive,
		called: called, begun: time.Now(),
	}

	switch n := g.(type) {
	case interface{ Node() string }:
		t.node = path.Base(n.Node())
	case interface {
		Check() *zk.CheckVersionRequest
	}:
		t.node = path.Base(n.Check().Path)
	}

	if c.Dead() {
		return t
	}

	ts.mu.Lock()
	ts.all = append(ts.all, t)
	ts.mu.Unlock()
	ts.world.held.begin(t)
	t.Holds()
	return t
}

// Holds reports whether the grant is held, and notes that. It blocks while the process stands
// still. A process that is dead holds nothing.
func (t *Turn) Holds() bool {
	t.client.Awake()
	if t.client.Dead() || t.grant.Err() != nil {
		return false
	}
	t.held = time.Now()
	return true
}

// Keep blocks for d, or until the grant is lost. Meanwhile it calls Holds again and again.
func (t *Turn) Keep(d time.Duration) {
	end := time.Now().Add(d)
	t.client.world.held.keep(t, end)
	step := t.client.world.Timeout / 64
	timer := time.NewTimer(step)
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
		case <-t.client.alive.Done():
		}
	}
}

// End notes that the turn is over; err is what the release returned. It returns err, or nil if err
// says that the grant was lost before, which is no failure. Nor is any error of a dead process.
func (t *Turn) End(err error) error {
	t.client.Awake()
	t.over = time.Now()
	t.lost = errors.Is(err, protocol.ErrLost) || t.client.Dead()
	w := t.client.world
	w.held.end(t)
	w.record.span(t.client.Name, fmt.Sprintf("token %d", t.token), t.begun.Sub(w.began), t.over.Sub(w.began), t.lost)
	if most := w.plan.turns(t.client.Name); w.record.turn(t.client.Name) >= most && most > 0 {
		runtime.Goexit() // a failure is shrunk: the client has as few turns as possible
	}
	if t.lost {
		return nil
	}

	return err
}

// excuse shortens a turn that was ended by force to the time before that. It fails if the holder
// learned of it too late.
func (ts *turns) excuse(t *Turn) error {
	w := ts.world
	at, ok := w.forced.begun.since(t.ended())
	if !ok || !at.Before(t.held) {
		return nil
	}
	if err := w.late(t.client, t.ended(), t.held, w.held.knows(t.client, t.token)); err != nil {
		return fmt.Errorf("%s: %s %w", ts.what, t, err)
	}

	t.held = at
	if at.Before(t.begun) {
		t.held = time.Time{}
	}

	return nil
}

// ended returns the keys of what may end the turn by force. The token may be that of other nodes,
// too: several are created by one transaction.
func (t *Turn) ended() []any {
	keys := []any{bySession(t.session)}
	switch {
	case t.node != "":
		keys = append(keys, byName(t.node))
	case !t.shared:
		keys = append(keys, byToken(t.token))
	}
	return keys
}

// final returns the turns as they count, when all of them are over.
func (ts *turns) final() ([]*Turn, error) {
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

// certain reports whether the grant was held for certain at some time.
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
