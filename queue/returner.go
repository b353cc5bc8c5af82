package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A returner puts entries back that nobody else looks after: entries whose consumers have left, and
// entries whose delay has passed. It asks the server only if something can have changed since its
// latest look. Only the goroutine of a consumer uses it.
type returner struct {
	*site
	seen    []*recipe.Watch // on the directories that the latest look read; nil if that look failed
	looked  time.Time
	present []string // the consumers that lived then, in order
	// next is when something will have to be put back, even without a change. It is zero if never.
	next  time.Time
	pause time.Duration // before entries that can't be put back are tried again; 0: there are none
}

const (
	retryAfter  = time.Second
	movedAtOnce = 50 // entries in a transaction
)

// glance looks before the first claim of a session. After that it looks as often as listings are
// checked.
func (r *returner) glance(life context.Context) error {
	if time.Since(r.looked) < staleAfter && !r.due() {
		return nil
	}
	return r.look(life)
}

func (r *returner) due() bool { return !r.next.IsZero() && !time.Now().Before(r.next) }

// watch returns watches that fire when something may have to be put back. when is the time when
// something will have to be put back anyway: now if a watch has fired, or zero.
func (r *returner) watch() (seen []*recipe.Watch, when time.Time) {
	if r.outdated() || r.seen == nil && r.next.IsZero() {
		return nil, time.Now()
	}
	for _, w := range r.seen {
		again := *w // because a Watch is not safe for concurrent use
		seen = append(seen, &again)
	}
	return seen, r.next
}

func (r *returner) outdated() bool { return slices.ContainsFunc(r.seen, hasChanged) }

func hasChanged(w *recipe.Watch) bool {
	select {
	case <-w.Changed():
		return true
	default:
		return false
	}
}

// unchanged reports whether nothing has changed since the latest look. It asks the server only
// after a reconnect.
func (r *returner) unchanged(life context.Context) (bool, error) {
	if r.seen == nil || r.due() || r.outdated() {
		return false, nil
	}

	for _, w := range r.seen {
		if same, err := w.Current(life); err != nil || !same {
			return false, err
		}
	}

	return true, nil
}

// look puts back the entries that have to go back now. If an entry can't be put back, a later look
// tries again.
func (r *returner) look(life context.Context) error {
	r.looked = time.Now()
	if same, err := r.unchanged(life); err != nil || same {
		return err
	}

	r.seen, r.next = []*recipe.Watch{}, time.Time{}
	entries, dirs, err := r.search(life)
	if err == nil {
		err = r.putBack(life, entries)
	}

	// The next look must begin anew.
	if err != nil {
		r.seen, r.next = nil, time.Time{}
		return err
	}

	for _, dir := range dirs {
		// A directory with other nodes stays.
		r.deleteNode(life, r.session, dir)
	}

	return nil
}

// list lists a directory that is watched, in order.
func (r *returner) list(life context.Context, w *recipe.Watch) ([]string, error) {
	if _, err := w.Ready(life); err != nil {
		return nil, err
	}
	r.seen = append(r.seen, w)
	return slices.Sorted(slices.Values(w.Children())), nil
}

// search returns the entries that have to go back now, and the directories that nobody needs after
// that. It reads no further than the first entry whose delay has not passed.
func (r *returner) search(life context.Context) (entries []found, dirs []string, err error) {
	consumers, delays := r.session.WatchChildren(r.path+consumersNode), r.session.WatchChildren(r.path+delayedNode)
	r.present, err = r.list(life, consumers)
	if err != nil {
		return nil, nil, err
	}
	owners, _, err := r.children(life, r.session, heldNode)
	if err != nil {
		return nil, nil, err
	}
	for _, owner := range owners {
		if slices.Contains(r.present, owner) {
			continue
		}
		// The consumer may have come after the listing.
		if stat, err := r.session.Exists(life, r.path+consumersNode+"/"+owner); err != nil {
			return nil, nil, err
		} else if stat != nil {
			continue
		}

		dir := heldNode + "/" + owner
		held, _, err := r.children(life, r.session, dir)
		if err != nil {
			return nil, nil, err
		}
		entries, dirs = append(entries, besideIn(dir, held)...), append(dirs, dir)
	}

	buckets, err := r.list(life, delays)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	for _, bucket := range buckets {
		begins, ok := layout.BucketDue(bucket)
		if !ok {
			continue
		}

		dir := delayedNode + "/" + bucket
		delayed, err := r.list(life, r.session.WatchChildren(r.path+dir))
		if err != nil {
			return nil, nil, err
		}
		// Nobody offers into the past.
		if len(delayed) == 0 && now.Sub(time.UnixMilli(begins)) > 2*time.Minute {
			dirs = append(dirs, dir)
		}

		for _, f := range besideIn(dir, delayed) {
			if due := time.UnixMilli(f.due); !due.After(now) {
				entries = append(entries, f)
			} else {
				r.wakeAt(due)
			}
		}
		if !r.next.IsZero() {
			break
		}
	}

	return entries, dirs, nil
}

// wakeAt makes the time of the next look no later than t.
func (r *returner) wakeAt(t time.Time) {
	if r.next.IsZero() || t.Before(r.next) {
		r.next = t
	}
}

// putBack puts back entries that are reserved or delayed. It skips entries that this client may not
// read or move.
func (r *returner) putBack(life context.Context, entries []found) error {
	if len(entries) == 0 {
		r.pause = 0
		return nil
	}
	r.returned.Store(true)
	r.unswept.Store(true)
	var mu sync.Mutex
	var why error // some entries can't go back
	harmless := func(f found, err error) error {
		if errors.Is(err, zk.ErrNoAuth) {
			mu.Lock()
			defer mu.Unlock()
			why, err = fmt.Errorf("%s: %w", f.node(), err), nil
		}
		// If the node is gone, another client was faster.
		return ignore(err, zk.ErrNoNode)
	}

	fresh, err := recipe.ReadAll(entries, func(f found) (*reading, error) {
		e, err := r.read(life, r.session, f)
		switch {
		case err != nil:
			return nil, harmless(f, err)
		// A node without a record is not ours.
		case !e.recorded:
			return nil, nil
		case e.record.Node == "":
			return e, nil
		}
		return nil, harmless(f, r.relocate(life, r.session, &r.place, e, move{record: e.record}))
	})

	// Entries without a place get one in the order in which they move.
	fresh = slices.DeleteFunc(fresh, func(e *reading) bool { return e == nil })
	for chunk := range slices.Chunk(fresh, movedAtOnce) {
		if err != nil || r.moveAll(life, chunk) {
			continue
		}
		// Probably another client is faster. Then it takes all of them.
		gone, _ := recipe.ReadAll(chunk, func(e *reading) (bool, error) { return r.isGone(life, r.session, e) })
		for i, e := range chunk {
			if !gone[i] {
				err = cmp.Or(err, harmless(e.found, r.relocate(life, r.session, &r.place, e, move{record: e.record})))
			}
		}
	}

	if err != nil && r.session.Err() != nil {
		return err
	}

	if why = cmp.Or(why, err); why == nil {
		r.pause = 0
		return nil
	}
	if r.pause == 0 {
		r.recipe.Logger().Warn("queue entries not put back yet", "path", r.path, "error", why)
	}
	r.pause = min(max(retryAfter, 2*r.pause), asideFor)
	r.wakeAt(time.Now().Add(r.pause))
	return nil
}

// moveAll moves entries to the tail in one transaction, and reports whether that has worked.
func (r *returner) moveAll(life context.Context, entries []*reading) bool {
	var ops []any
	for _, e := range entries {
		ops = append(ops, r.removal(r.session, e)...)
		ops = append(ops, r.arrival(r.session, e.data, move{record: e.record})...)
	}
	if recipe.MultiSize(ops...) > min(claimBytes, r.session.RequestLimit()) || r.numbered(life, r.session) != nil {
		return false
	}
	_, _, err := r.end(life, r.session, entries[0], ops[len(r.removal(r.session, entries[0])):]...)
	return err == nil
}

// sweep deletes the records whose entries other libraries have taken, in the background. It costs
// one request if there are no records. (An entry that is in no steady listing never comes back.)
func (p *site) sweep() {
	if !p.unswept.Swap(false) {
		return
	}

	p.session.Go(func(life context.Context, work *recipe.Session) {
		records, _, err := p.children(life, work, returnedNode)
		if err == nil && len(records) == 0 {
			return
		}

		all, there := p.place, make(map[string]bool)
		all.priorities = true
		entries, steady, _ := all.list(life, work)
		for _, f := range entries {
			there[f.ID] = true
		}
		for _, id := range records {
			if steady && !there[id] {
				p.deleteNode(life, work, returnedPath(id))
			}
		}
		if err != nil || !steady {
			p.unswept.Store(true)
		}
	})
}
