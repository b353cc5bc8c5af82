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
	// namesPerSecond bounds how often a long listing is read again.
	namesPerSecond = 10_000

	// refusedFor is for how long a node that may not be read is not asked for again.
	refusedFor = 10 * time.Second

	// queuesPerLook is of how many queues the elements are read again, if a look may do that.
	queuesPerLook = 2

	// queueRest is how long the elements of a queue are left alone.
	queueRest = 2 * time.Second

	// markerTime is more than it takes to begin to watch for a marker.
	markerTime = time.Second
)

// A memory is what was read under one session. Its watches say what has changed since.
type memory struct {
	session   int64
	requests  *atomic.Int64 // of this and all former memories
	confirmed atomic.Int64  // when the last Sync that was answered was sent, as time.Time.UnixNano

	mu      sync.Mutex
	look    int              // the number of the present one
	data    map[string]*seen // by path
	lists   map[string]*seen // likewise, of children
	queues  map[string]*elements
	refresh map[string]bool // the queues whose elements are to be read again
}

// seen is a node that was read, or its children.
type seen struct {
	watch   *recipe.Watch
	stat    *zk.Stat // nil if there is no such node
	names   []string // sorted
	err     error    // instead of all but the Stat: the server refuses
	read    time.Time
	look    int       // the last one that asked for it
	waited  bool      // it was seen in line behind others, so it marks its release
	expects time.Time // since when its release marker is watched for; zero if it is not
}

// elements is what was found in a queue.
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
	m.refresh = make(map[string]bool)
	if !queues {
		return
	}

	// Those that were read longest ago come first.
	paths := slices.SortedFunc(maps.Keys(m.queues), func(a, b string) int {
		return m.queues[a].read.Compare(m.queues[b].read)
	})
	for _, path := range paths[:min(queuesPerLook, len(paths))] {
		m.refresh[path] = time.Since(m.queues[path].read) > queueRest
	}
}

// finish ends a look. It forgets what the look has not asked for, and returns how the holders among
// that have ended.
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

		if l := m.lists[path.Dir(node)]; l != nil && l.look == m.look && l.err == nil && l.stat != nil && isEphemeral(s.stat) {
			d := death{s.stat.EphemeralOwner, l.stat.Pzxid}
			deaths[d] = append(deaths[d], node)
		}
	}

	// A transaction that deletes nodes of one session at several paths is that session's end.
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

// hears reports whether the marker of s could not be missed: the watch for it was set long before
// the server has answered last.
func (m *memory) hears(s *seen) bool {
	return !s.expects.IsZero() && m.confirmed.Load() > s.expects.Add(markerTime).UnixNano()
}

// A death is a session whose nodes have gone, and the transaction in which they have.
type death struct{ session, zxid int64 }

// changed reports whether a watch has fired whose node may be read again.
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

// stale reports whether the server has told of a change.
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

// get reads a node, unless it is remembered. One that may not be read has a Stat and no data.
func (m *memory) get(ctx context.Context, s *recipe.Session, path string) ([]byte, *zk.Stat, error) {
	found, err := m.recall(ctx, s, m.data, path, s.Watch)
	if err != nil || found.err != nil || found.stat == nil {
		return nil, found.stat, err
	}
	return found.watch.Data(), found.stat, nil
}

// children lists a node, unless that is remembered. The caller must not change the names. A node
// that may not be listed has a Stat and an error.
func (m *memory) children(ctx context.Context, s *recipe.Session, path string) ([]string, *zk.Stat, error) {
	found, err := m.recall(ctx, s, m.lists, path, s.WatchChildren)
	return found.names, found.stat, cmp.Or(err, found.err)
}

// recall returns what is remembered of a path, and reads it if nothing is, or if it has changed.
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

	if known != nil && known.err != nil && !known.stale() {
		return known, nil
	} else if known != nil && known.err == nil {
		if known.stale() && known.resting() {
			return known, nil
		}
		// After a reconnect this asks the server.
		if same, err := known.watch.Current(ctx); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return &seen{}, err
		} else if same && !known.stale() {
			return known, nil
		}
	}

	for {
		fresh := &seen{watch: watch(path), read: time.Now(), look: look, waited: was.waited, expects: was.expects}
		m.requests.Add(1)
		same, err := fresh.watch.Current(ctx)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			// The listing of its parent is watched. What was remembered is no part of this look.
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
			if fresh.stat, err = fresh.watch.Ready(ctx); err != nil { // ctx may have ended since
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

// note notes the state of a contender that was read and marks its release if it has had to wait. If
// it holds now, note begins to watch for its marker.
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

// elements fills in what is remembered of a queue, and reports whether that suffices.
func (m *memory) elements(p *Place) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.Entries.Length == 0 {
		return true
	}

	e := m.queues[p.Path]
	if e == nil || m.refresh[p.Path] {
		return false
	}
	e.look = m.look
	p.Entries.Reserved, p.Entries.Looked, p.Entries.Oldest = e.found.Reserved, e.found.Looked, e.found.Oldest
	p.Contenders = append(p.Contenders, e.contenders...)
	p.Notes = append(p.Notes, e.notes...)
	return true
}

// keepElements remembers what was read of a queue.
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
