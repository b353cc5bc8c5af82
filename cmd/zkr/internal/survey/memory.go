package survey

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

const (
	// namesPerSecond limits how often a long listing is read again.
	namesPerSecond = 10_000

	// refusedFor is the pause after a refusal (by an ACL) before the node is read again.
	refusedFor = 10 * time.Second

	// queuesPerLook is the number of queues whose elements one look can read again.
	queuesPerLook = 2

	// queueRest is the least time between two reads of a queue's elements.
	queueRest = 2 * time.Second

	// markerTime is longer than the client needs to set the watch for a marker.
	markerTime = time.Second
)

// A memory has everything that was read under one session. Its watches report changes since then.
type memory struct {
	session   int64
	requests  *atomic.Int64 // counts the requests of this and all former memories
	confirmed atomic.Int64  // when the last Sync with an answer was sent (UnixNano)

	mu      sync.Mutex
	look    int              // the number of the present look
	data    map[string]*seen // by path
	lists   map[string]*seen // listings of children, by path
	queues  map[string]*elements
	refresh int // how many queues this look can still read again
}

// seen is a node, or a listing of its children, as it was read.
type seen struct {
	watch   *recipe.Watch
	stat    *zk.Stat // nil if there is no such node
	names   []string // sorted
	err     error    // the server refuses: only the Stat is known
	read    time.Time
	look    int       // the last look that needed it
	waited  bool      // it was seen in line behind others, so it marks its release
	expects time.Time // since when its release marker is watched for; zero if it is not
}

// elements has the elements of a queue as they were read.
type elements struct {
	found      Entries
	contenders []Contender
	notes      []string
	read       time.Time
	look       int
}

func newMemory(session int64, requests *atomic.Int64) *memory {
	return &memory{
		session: session, requests: requests, data: make(map[string]*seen), lists: make(map[string]*seen), queues: make(map[string]*elements),
	}
}

// begin begins a look.
func (m *memory) begin(queues bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.look++
	m.refresh = 0
	if queues {
		m.refresh = queuesPerLook
	}
}

// finish ends a look. It forgets all nodes that the look did not need, and returns how their
// holders ended.
func (m *memory) finish() map[string]End {
	m.mu.Lock()
	defer m.mu.Unlock()

	ended := make(map[string]End)
	deaths := make(map[death][]string)
	for node, s := range m.data {
		if s.look == m.look {
			continue
		}

		delete(m.data, node)
		switch {
		case s.err != nil || s.stat == nil:
			continue
		case s.watch.Marked():
			ended[node] = Released
		case s.watch.Deleted() && m.hears(s):
			ended[node] = Lost
		}

		// The Pzxid of the parent names the transaction that deleted the node (or a later change).
		if l := m.lists[path.Dir(node)]; l != nil && l.look == m.look && l.err == nil && l.stat != nil && isEphemeral(s.stat) {
			d := death{s.stat.EphemeralOwner, l.stat.Pzxid}
			deaths[d] = append(deaths[d], node)
		}
	}

	// If one transaction deletes nodes of a session at several paths, it's the end of that session.
	// (A release deletes one node.)
	for _, nodes := range deaths {
		if slices.ContainsFunc(nodes, func(node string) bool { return path.Dir(node) != path.Dir(nodes[0]) }) {
			for _, node := range nodes {
				ended[node] = Lost
			}
		}
	}

	maps.DeleteFunc(m.lists, func(_ string, s *seen) bool { return s.look != m.look })
	maps.DeleteFunc(m.queues, func(_ string, e *elements) bool { return e.look != m.look })
	return ended
}

// hears reports whether we'd have noticed the marker of s: its watch was set long before the
// server's last answer.
func (m *memory) hears(s *seen) bool {
	return !s.expects.IsZero() && m.confirmed.Load() > s.expects.Add(markerTime).UnixNano()
}

// A death is a transaction that deleted nodes of a session.
type death struct{ session, zxid int64 }

// changed reports whether a watch has fired for a node that can be read again.
func (m *memory) changed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, nodes := range []map[string]*seen{m.data, m.lists} {
		for _, s := range nodes {
			if s.stale() && !s.resting() {
				return true
			}
		}
	}
	return false
}

// stale reports whether the server has sent an event for s.
func (s *seen) stale() bool {
	if s.err != nil {
		return time.Since(s.read) > refusedFor
	}

	select {
	case <-s.watch.Changed():
		return true
	default:
		return false
	}
}

// resting reports whether s is a listing that is too long to be read again now.
func (s *seen) resting() bool {
	pause := time.Duration(len(s.names)) * time.Second / namesPerSecond
	return s.err == nil && time.Since(s.read) < pause
}

// get reads a node unless the memory has it. If the node can't be read, it returns a Stat without
// data.
func (m *memory) get(ctx context.Context, s *recipe.Session, path string) ([]byte, *zk.Stat, error) {
	found, err := m.recall(ctx, s, m.data, path, s.Watch)
	if err != nil || found.err != nil || found.stat == nil {
		return nil, found.stat, err
	}
	return found.watch.Data(), found.stat, nil
}

// children lists a node unless the memory has the listing. The caller must not change the names. If
// the node can't be listed, it returns a Stat and an error.
func (m *memory) children(ctx context.Context, s *recipe.Session, path string) ([]string, *zk.Stat, error) {
	found, err := m.recall(ctx, s, m.lists, path, s.WatchChildren)
	return found.names, found.stat, cmp.Or(err, found.err)
}

// recall returns the memory of a path. It reads the path if there is none or if it has changed.
func (m *memory) recall(
	ctx context.Context, s *recipe.Session, nodes map[string]*seen, path string, watch func(string) *recipe.Watch,
) (*seen, error) {
	m.mu.Lock()
	known := nodes[path]
	var was seen
	if known != nil {
		known.look = m.look
		was = *known
	}
	look := m.look
	m.mu.Unlock()

	// A refusal is believed for a while.
	if known != nil && known.err != nil && !known.stale() {
		return known, nil
	} else if known != nil && known.err == nil {
		if known.stale() && known.resting() {
			return known, nil
		}
		// After a reconnect, Current asks the server.
		if same, err := known.watch.Current(ctx); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return &seen{}, err
		} else if same && !known.stale() {
			return known, nil
		}
	}

	// If a change overtook the read, read again.
	for {
		fresh := &seen{watch: watch(path), read: time.Now(), look: look, waited: was.waited, expects: was.expects}
		m.requests.Add(1)
		same, err := fresh.watch.Current(ctx)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			// The watch on the parent's listing reports the node's return. The node is no part of
			// this look.
			m.mu.Lock()
			if known != nil {
				known.look = 0
			}
			m.mu.Unlock()
			return &seen{}, nil
		case errors.Is(err, zk.ErrNoAuth):
			fresh.err = err
			m.requests.Add(1)
			if fresh.stat, err = statOf(ctx, s, path); err != nil {
				return &seen{}, err
			}
		case err != nil:
			return &seen{}, err
		case !same:
			continue
		default:
			if fresh.stat, err = fresh.watch.Ready(ctx); err != nil { // ctx can have ended since
				return &seen{}, err
			}
			fresh.names = slices.Sorted(slices.Values(fresh.watch.Children()))
		}

		m.mu.Lock()
		nodes[path] = fresh
		m.mu.Unlock()
		return fresh, nil
	}
}

// note records the state of a contender that marks its release after a wait. Once the contender
// holds, note watches for the marker.
func (m *memory) note(path string, state State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.data[path]
	switch {
	case s == nil || s.err != nil:
		return
	case state == Waits:
		s.waited = true
		return
	case !s.waited || !s.expects.IsZero():
		return
	}

	s.watch.ExpectMarker()
	s.expects = time.Now()
	m.requests.Add(1)
}

// elements fills in the elements of a queue from the memory, and reports whether that is enough.
func (m *memory) elements(p *Place) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.Entries.Length == 0 {
		return true
	}

	e := m.queues[p.Path]
	if e == nil {
		return false
	}

	// A queue rests while the other queues have their turns.
	rest := max(queueRest, time.Duration(len(m.queues)/queuesPerLook)*time.Second)
	if m.refresh > 0 && time.Since(e.read) > rest {
		m.refresh--
		return false
	}

	e.look = m.look
	p.Entries.Reserved, p.Entries.Looked, p.Entries.Oldest = e.found.Reserved, e.found.Looked, e.found.Oldest
	p.Contenders = append(p.Contenders, e.contenders...)
	p.Notes = append(p.Notes, e.notes...)
	return true
}

// keepElements puts the elements of a queue into the memory.
func (m *memory) keepElements(p *Place) {
	const each, reserved = 64, 2 // see queue.Queue.List
	m.requests.Add(int64(2 + min(p.Entries.Length, max(each, p.Entries.Looked)) + reserved*p.Entries.Reserved))

	m.mu.Lock()
	defer m.mu.Unlock()
	m.queues[p.Path] = &elements{
		found: *p.Entries, contenders: slices.Clone(p.Contenders), notes: slices.Clone(p.Notes),
		read: time.Now(), look: m.look,
	}
}
