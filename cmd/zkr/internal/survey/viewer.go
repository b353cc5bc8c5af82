package survey

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A Viewer surveys a path again and again. It remembers everything that it has read, with watches,
// so a look only costs requests for changes. If nothing changes, a look costs none.
//
// Reservations of queue elements fire no watch. A Viewer reads them again only on demand: see
// [Viewer.Look]. A Viewer is not safe for concurrent use (but Confirm and Requests are).
type Viewer struct {
	client *protocol.Client
	path   string
	limits Limits
	ended  map[string]End
	blind  bool // the last Look was the first under a new session

	memory   atomic.Pointer[memory] // nil before the first Look
	requests atomic.Int64
}

// NewViewer returns a Viewer of path and everything below it. It does no I/O.
func NewViewer(c *protocol.Client, path string, limits Limits) *Viewer {
	return &Viewer{client: c, path: path, limits: limits}
}

// Look returns the same as the function [Look], with the same errors. It doesn't read nodes again
// that have not changed. If queues is true, it reads the elements of some queues again, in turn.
//
// A long listing is only read again after a while, so no path costs more than 10,000 names a
// second.
func (v *Viewer) Look(ctx context.Context, queues bool) (*Place, error) {
	return across(ctx, v.client, v.path, func(s *recipe.Session) (*Place, error) {
		m := v.memory.Load()
		if m == nil || m.session != s.ID() { // the watches of another session say nothing about this one
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

// Changed reports whether a Look would find a change, as far as the server has sent events. It does
// no I/O. After a reconnect, events can be missing.
func (v *Viewer) Changed() bool {
	m := v.memory.Load()
	return m == nil || m.changed()
}

// Ended returns how the contender with this path ended between the last two Looks, if that is
// certain. A lock or writer of this module that had to wait marks its release. If one transaction
// deletes nodes of a session at several paths, they were lost. All other ends leave no trace.
func (v *Viewer) Ended(path string) End {
	if v.blind {
		return Unseen
	}
	return v.ended[path]
}

// Confirm blocks until the leader has answered, so that the next Look is not older than this call.
// It returns ctx's error, [protocol.ErrClosed] or the server's error.
func (v *Viewer) Confirm(ctx context.Context) error {
	s, err := recipe.SessionOf(ctx, v.client)
	if err != nil {
		return err
	}

	// The answer only proves the state from before the request.
	began := time.Now()
	v.requests.Add(1)
	err = s.Sync(ctx, v.path)
	if m := v.memory.Load(); err == nil && m != nil && m.session == s.ID() {
		m.confirmed.Store(began.UnixNano())
	}
	return err
}

// Requests returns the number of requests that the Viewer has sent.
func (v *Viewer) Requests() int64 { return v.requests.Load() }
