package survey

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// An End is how a contender has ended, as far as a [Viewer] can tell.
type End string

// The ends that are told apart. Empty is all that cannot be told.
const (
	Released End = "released" // its holder has given it back
	Lost     End = "lost"     // it was not given back: its session has ended, or it was broken
	Unseen   End = "unseen"   // it ended while there was no connection
)

// A Viewer looks at a path again and again. It remembers what it has read and watches that, so that
// a look costs requests only for what has changed. While nothing changes it costs none.
//
// Reservations of queue elements change nothing that is watched. A Viewer reads them again when it
// is asked to: see [Viewer.Look]. It is not safe for concurrent use, but for Confirm and Requests.
type Viewer struct {
	client *protocol.Client
	path   string
	limits Limits
	ended  map[string]End
	blind  bool // the last Look was the first one under its session, and not the first of all

	memory   atomic.Pointer[memory] // nil before the first Look
	requests atomic.Int64
}

// NewViewer returns a Viewer of what stands at path and below it. It does no I/O.
func NewViewer(c *protocol.Client, path string, limits Limits) *Viewer {
	return &Viewer{client: c, path: path, limits: limits}
}

// Look returns what [Look] does, and with the same errors. What has not changed since the Look
// before is not read again. If queues is true, the elements of some queues are read again, those
// first that were read longest ago.
//
// A listing of many names is read again only after a while, so that no path costs more than 10,000
// names a second.
func (v *Viewer) Look(ctx context.Context, queues bool) (*Place, error) {
	return across(ctx, v.client, v.path, func(s *recipe.Session) (*Place, error) {
		m := v.memory.Load()
		if m == nil || m.session != s.ID() { // nothing of what was read under another one is true now
			m = newMemory(s.ID(), &v.requests)
			v.memory.Store(m)
		}
		m.begin(queues)
		p, err := look(ctx, v.client, s, v.path, v.limits, m)
		if err == nil {
			v.blind = v.ended != nil && m.look == 1
			v.ended = m.finish()
		}
		return p, err
	})
}

// Changed reports whether a Look would find a change, as far as the server has told. It does no
// I/O. After a reconnect the server may have missed to tell.
func (v *Viewer) Changed() bool {
	m := v.memory.Load()
	return m == nil || m.changed()
}

// Ended returns how the contender with this path has ended between the last two Looks, as far as
// that is certain. A lock or writer of this module that has had to wait announces its release.
// Nodes of one session that go in one transaction at several paths were not released. All else
// leaves no trace.
func (v *Viewer) Ended(path string) End {
	if v.blind {
		return Unseen
	}
	return v.ended[path]
}

// Confirm blocks until the leader has answered: what the next Look finds is no older. It returns
// ctx's error, or [protocol.ErrClosed], or the server's error.
func (v *Viewer) Confirm(ctx context.Context) error {
	s, err := recipe.SessionOf(ctx, v.client)
	if err != nil {
		return err
	}

	began := time.Now()
	v.requests.Add(1)
	err = s.Sync(ctx, v.path)
	if m := v.memory.Load(); err == nil && m != nil && m.session == s.ID() {
		m.confirmed.Store(began.UnixNano())
	}
	return err
}

// Requests returns how many requests the Viewer has sent.
func (v *Viewer) Requests() int64 { return v.requests.Load() }
