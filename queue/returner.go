package queue

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A returner puts entries back into the queue that nobody else looks after: those that were reserved
// by consumers that have left, and those whose delay has passed. It asks the server only if something
// may have changed since it was called last. It is safe for concurrent use.
type returner struct {
	*site
	lock    gate      // protects what follows, also while the server is asked
	holders *listing  // of the consumers, since the claims of those that have left were put back
	delayed []listing // of the directory of delayed entries, and of those in it up to one that is not empty
	next    time.Time // when the first entry is due; zero if there is none
	looked  time.Time
	retry   time.Time // if it was not possible to put all back
}

// A listing is a directory that was listed and is watched since.
type listing struct {
	*recipe.Watch
	node string // below the queue's path
}

const retryAfter = time.Second

// glance looks before the first claim of a session, and then no more often than listings are checked.
func (r *returner) glance(life context.Context) error {
	r.lock.take()
	recent := time.Since(r.looked) < staleAfter && (r.next.IsZero() || time.Now().Before(r.next))
	r.lock.give()
	if recent {
		return nil
	}
	return r.look(life, r.session)
}

// look puts back what has to be put back now.
func (r *returner) look(life context.Context, work *recipe.Session) error {
	r.lock.take()
	defer r.lock.give()
	r.looked, r.retry = time.Now(), time.Time{}
	return cmp.Or(r.lookForOrphans(life, work), r.lookForDue(life, work))
}

// watch returns what changes when there is something to look for, and when that is: now if something
// has changed since the last look, when an entry is due, or never.
func (r *returner) watch(ctx context.Context) (all []*recipe.Watch, when time.Time, err error) {
	r.lock.take()
	defer r.lock.give()
	seen := slices.Clone(r.delayed)
	if r.holders != nil {
		seen = append(seen, *r.holders)
	}
	changed := r.holders == nil || r.delayed == nil
	for _, l := range seen {
		changed = changed || hasChanged(l.Watch)
		w := r.session.WatchChildren(r.path + l.node)
		if _, err := w.Ready(ctx); err != nil {
			return nil, time.Time{}, err
		}
		all = append(all, w)
	}
	switch {
	case !changed:
		return all, r.next, nil
	case r.retry.IsZero():
		return all, time.Now(), nil
	}
	return all, r.retry, nil
}

// unchanged reports whether listings are still true. It asks the server only after a reconnect.
func unchanged(life context.Context, listings ...listing) (bool, error) {
	for _, l := range listings {
		if hasChanged(l.Watch) {
			return false, nil
		}
		if same, err := l.Current(life); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

func hasChanged(w *recipe.Watch) bool {
	select {
	case <-w.Changed():
		return true
	default:
		return false
	}
}

// list lists the children of a node. There are none if it does not exist.
func (r *returner) list(life context.Context, work *recipe.Session, node string) (l listing, children []string, err error) {
	l = listing{work.Background().WatchChildren(r.path + node), node}
	stat, err := l.Ready(life)
	if err == nil && stat != nil {
		children = slices.Sorted(slices.Values(l.Children()))
	}
	return l, children, err
}

// lookForOrphans puts back what was reserved by consumers that have left.
func (r *returner) lookForOrphans(life context.Context, work *recipe.Session) error {
	if r.holders != nil {
		if same, err := unchanged(life, *r.holders); err != nil || same {
			return err
		}
	}
	holders, present, err := r.list(life, work, consumersNode)
	if err != nil {
		return err
	}
	owners, _, err := r.children(life, work, heldNode)
	if err != nil {
		return err
	}

	r.holders = &holders
	for _, owner := range owners {
		if slices.Contains(present, owner) {
			continue
		}
		stat, err := work.Exists(life, r.path+consumersNode+"/"+owner) // it may have come after the listing
		if err != nil {
			r.holders = nil
			return err
		} else if stat != nil {
			continue
		}
		held, _, err := r.children(life, work, heldNode+"/"+owner)
		if err == nil {
			err = r.putBack(life, work, heldIn(owner, held))
		}
		if err == nil {
			r.deleteNode(life, work, heldNode+"/"+owner, -1) // unless there is something else
			continue
		}
		r.holders, r.retry = nil, time.Now().Add(retryAfter)
		if r.session.Err() != nil {
			return err
		}
	}
	return nil
}

// lookForDue puts back what is due.
func (r *returner) lookForDue(life context.Context, work *recipe.Session) error {
	for range 2 {
		same, err := unchanged(life, r.delayed...)
		if err == nil && (!same || r.delayed == nil) {
			err = r.listDelayed(life, work)
		}
		if err != nil || r.next.IsZero() || time.Now().Before(r.next) {
			return err
		}
		var due []found
		now := time.Now().UnixMilli()
		for _, l := range r.delayed[1:] {
			due = append(due, delayedIn(l.node[len(delayedNode)+1:], l.Children())...)
		}
		due = slices.DeleteFunc(due, func(f found) bool { return f.due > now })
		if err := r.putBack(life, work, due); r.session.Err() != nil {
			return err
		}
	}
	r.retry = time.Now().Add(retryAfter) // there may be some that cannot be put back
	r.delayed, r.next = nil, r.retry
	return nil
}

// listDelayed reads when the first entry is due.
func (r *returner) listDelayed(life context.Context, work *recipe.Session) error {
	all, buckets, err := r.list(life, work, delayedNode)
	r.delayed, r.next = []listing{all}, time.Time{}
	for _, bucket := range buckets {
		begins, ok := layout.BucketDue(bucket)
		if !ok || err != nil {
			continue
		}
		var l listing
		var names []string
		if l, names, err = r.list(life, work, delayedNode+"/"+bucket); err != nil {
			break
		}
		entries := delayedIn(bucket, names)
		if len(entries) == 0 && time.Since(time.UnixMilli(begins)) > 2*time.Minute &&
			r.deleteNode(life, work, l.node, -1) == nil { // nobody needs it any more
			continue
		}
		r.delayed = append(r.delayed, l)
		if len(entries) > 0 {
			first := slices.MinFunc(entries, func(a, b found) int { return cmp.Compare(a.due, b.due) })
			r.next = time.UnixMilli(first.due)
			break
		}
	}
	if err != nil {
		r.delayed = nil
	}
	return err
}

// putBack puts entries back that are reserved or delayed. What cannot be put back now is tried again
// by the next look.
func (r *returner) putBack(life context.Context, work *recipe.Session, entries []found) error {
	r.returned.Store(true)
	err := each(len(entries), func(i int) error {
		e, err := r.read(life, work, entries[i])
		if err == nil && e.recorded { // it is one of ours
			err = r.relocate(life, work, move{record: e.record, data: e.data}, func(ops []any) (int, error) {
				return r.end(life, work, e, ops...)
			})
		}
		return ignore(err, zk.ErrNoNode) // another client was faster
	})
	if err != nil && r.session.Err() == nil {
		r.recipe.Logger().Warn("queue entries not put back yet", "path", r.path, "error", err)
	}
	return err
}
