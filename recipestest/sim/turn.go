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

// A Grant is something held: the lease of a lock, for example, or the term of an election. Its
// holder can ask whether it still holds it. If there is a Node method, it should return the name of
// the grant's node. Otherwise the node is taken from a Check method like the recipes'.
type Grant interface {
	Token() int64
	Err() error
	Done() <-chan struct{}
}

// A Turn is the time in which a client holds something, as far as we know. It belongs to one
// goroutine.
//
// A grant is certainly held at a moment when its holder asks and gets no error. It is certainly not
// held before the call that asked for it, or after its holder has found out about its end. If a
// grant was ended by force (by a deleted node or an expired session), it needn't be held from then
// on. But its holder must notice that: within four round trips and a tenth of a second if the
// client's events say that it held something with that token and there is no other fault, and
// within two session timeouts otherwise.
type Turn struct {
	hold
	grant  Grant
	node   string
	shared bool      // other turns have the same token
	called time.Time // the grant came after this
	begun  time.Time // and before this
	held   time.Time // when it was last certainly held: not before begun, or the zero time
	over   time.Time // the grant had ended by then
}

// turns are the turns of a history.
type turns struct {
	world *World
	what  string
	mu    sync.Mutex // protects all
	all   []*Turn
}

// turns makes a history in which clients hold something.
func (w *World) turns(what string) turns {
	w.held.mu.Lock()
	defer w.held.mu.Unlock()
	w.held.expected = true
	return turns{world: w, what: what}
}

// begin notes a grant, once the process of its holder runs.
func (ts *turns) begin(c *Client, called time.Time, g Grant, exclusive bool) *Turn {
	c.Awake()
	t := &Turn{
		hold:  hold{client: c, token: g.Token(), session: c.sessionID(), exclusive: exclusive},
		grant: g, called: called, begun: time.Now(),
	}

	switch n := g.(type) {
	case interface{ Node() string }:
		t.node = path.Base(n.Node())
	case interface {
		Check() *zk.CheckVersionRequest
	}:
		t.node = path.Base(n.Check().Path)
	}

	// What a dead process was granted goes into no history.
	if c.Dead() {
		return t
	}

	ts.mu.Lock()
	ts.all = append(ts.all, t)
	ts.mu.Unlock()
	ts.world.held.begin(&t.hold)
	t.Holds()
	return t
}

// Holds reports whether the grant is held, and notes that. It blocks while the process stands
// still. A dead process holds nothing.
func (t *Turn) Holds() bool {
	t.client.Awake()
	if t.client.Dead() || t.grant.Err() != nil {
		return false
	}
	t.held = time.Now()
	return true
}

// Keep blocks for d, or until the grant is lost. Meanwhile it keeps calling Holds.
func (t *Turn) Keep(d time.Duration) {
	end := time.Now().Add(d)
	t.client.world.held.keep(t, end)
	// The history knows only when Holds last succeeded, so ask often.
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

// End notes the end of the turn. err is the error of the release. End returns err, or nil if err
// only says that the grant was lost before (which is no failure). Errors of a dead process don't
// count either.
func (t *Turn) End(err error) error {
	t.client.Awake()
	t.over = time.Now()
	lost := errors.Is(err, protocol.ErrLost) || t.client.Dead()
	w := t.client.world
	w.held.end(&t.hold, lost)
	w.record.span(t.client.Name, fmt.Sprintf("token %d", t.token), t.begun.Sub(w.began), t.over.Sub(w.began), lost)
	if most := w.plan.turns(t.client.Name); w.record.turn(t.client.Name) >= most && most > 0 {
		runtime.Goexit() // a failure is being shrunk, so clients have as few turns as possible
	}

	if lost {
		return nil
	}

	return err
}

// excuse shortens a turn that was ended by force to the time before that. If the holder noticed too
// late, it fails.
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
	// It may have ended before its holder had it, so it was never certainly held.
	if at.Before(t.begun) {
		t.held = time.Time{}
	}

	return nil
}

// ended returns the keys of everything that can end the turn by force. (The token can belong to
// several nodes, because one transaction can create several.)
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

// final returns the turns as they count once all of them have ended.
func (ts *turns) final() ([]*Turn, error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()

	for _, t := range ts.all {
		// A turn without an end lasts until now.
		if t.over.IsZero() {
			t.over = time.Now()
		}
		if err := ts.excuse(t); err != nil {
			return nil, err
		}
	}

	return ts.all, nil
}

// certain reports whether the grant was certainly held at some time.
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
