package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
	seen   []*recipe.Watch // on the directories that the latest look read; nil if that look failed
	looked time.Time
	next   time.Time // when something will have to be put back, even without a change; zero if never
	said   bool      // that some entries can't be put back
}

const retryAfter = time.Second

// glance looks before the first claim of a session. After that it looks as often as listings are
// checked.
func (r *returner) glance(life context.Context) error {
	if time.Since(r.looked) < staleAfter && !r.due() {
		return nil
	}
	return r.look(life, r.session)
}

func (r *returner) due() bool { return !r.next.IsZero() && !time.Now().Before(r.next) }

// watch returns watches that fire when something may have to be put back. when is the time when
// something will have to be put back anyway: now if a watch has fired, or zero.
func (r *returner) watch() (seen []*recipe.Watch, when time.Time) {
	if slices.ContainsFunc(r.seen, hasChanged) || r.seen == nil && r.next.IsZero() {
		return nil, time.Now()
	}
	for _, w := range r.seen {
		again := *w // because a Watch is not safe for concurrent use
		seen = append(seen, &again)
	}
	return seen, r.next
}

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
	if r.seen == nil || r.due() {
		return false, nil
	}

	for _, w := range r.seen {
		if hasChanged(w) {
			return false, nil
		}

		if same, err := w.Current(life); err != nil || !same {
			return false, err
		}
	}

	return true, nil
}

// look puts back the entries that have to go back now. If an entry can't be put back, a later look
// tries again.
func (r *returner) look(life context.Context, work *recipe.Session) error {
	r.looked = time.Now()
	if same, err := r.unchanged(life); err != nil || same {
		return err
	}

	// If this look fails, the next one must begin anew.
	r.seen, r.next = nil, time.Time{}
	seen := []*recipe.Watch{}
	list := func(node string) ([]string, error) {
		w := work.Background().WatchChildren(r.path + node)
		if _, err := w.Ready(life); err != nil {
			return nil, err
		}

		seen = append(seen, w)
		return slices.Sorted(slices.Values(w.Children())), nil
	}

	orphans, dirs, err := r.orphans(life, work, list)
	if err != nil {
		return err
	}

	due, next, err := r.dueEntries(life, work, list)
	if err != nil {
		return err
	}

	skipped, err := r.putBack(life, work, slices.Concat(orphans, due))
	switch retry := time.Now().Add(asideFor); {
	case err == nil && skipped && (next.IsZero() || retry.Before(next)):
		r.seen, r.next = seen, retry
	case err == nil:
		r.seen, r.next = seen, next
	case r.session.Err() != nil:
		return err
	default:
		r.next = time.Now().Add(retryAfter)
		return nil
	}

	for _, dir := range dirs {
		// A directory with other nodes stays.
		r.deleteNode(life, work, dir)
	}

	return nil
}

// orphans returns the entries whose consumers have left, with the directories of these consumers.
func (r *returner) orphans(life context.Context, work *recipe.Session, list func(string) ([]string, error)) (
	entries []found, dirs []string, err error) {
	present, err := list(consumersNode)
	if err != nil {
		return nil, nil, err
	}
	owners, _, err := r.children(life, work, heldNode)
	if err != nil {
		return nil, nil, err
	}
	for _, owner := range owners {
		if slices.Contains(present, owner) {
			continue
		}
		// The consumer may have come after the listing.
		stat, err := work.Exists(life, r.path+consumersNode+"/"+owner)
		if err != nil {
			return nil, nil, err
		} else if stat != nil {
			continue
		}

		dir := heldNode + "/" + owner
		held, _, err := r.children(life, work, dir)
		if err != nil {
			return nil, nil, err
		}
		entries, dirs = append(entries, heldIn(owner, held)...), append(dirs, dir)
	}
	return entries, dirs, nil
}

// dueEntries returns the entries whose delay has passed. It also returns when the first of the
// other delayed entries is due, and reads no further than that entry.
func (r *returner) dueEntries(life context.Context, work *recipe.Session, list func(string) ([]string, error)) (
	entries []found, next time.Time, err error) {
	buckets, err := list(delayedNode)
	if err != nil {
		return nil, time.Time{}, err
	}
	now := time.Now()
	for _, bucket := range buckets {
		begins, ok := layout.BucketDue(bucket)
		if !ok {
			continue
		}
		dir := delayedNode + "/" + bucket
		names, err := list(dir)
		if err != nil {
			return nil, time.Time{}, err
		}
		// Nobody offers into the past, so the directory can go.
		if len(names) == 0 && now.Sub(time.UnixMilli(begins)) > 2*time.Minute {
			r.deleteNode(life, work, dir)
		}

		for _, f := range delayedIn(bucket, names) {
			if due := time.UnixMilli(f.due); !due.After(now) {
				entries = append(entries, f)
			} else if next.IsZero() || due.Before(next) {
				next = due
			}
		}
		if !next.IsZero() {
			break
		}
	}
	return entries, next, nil
}

// putBack puts back entries that are reserved or delayed. It skips entries that this client may not
// read or move, and reports whether there are any.
func (r *returner) putBack(life context.Context, work *recipe.Session, entries []found) (skipped bool, err error) {
	r.returned.Store(true)
	refusals, err := recipe.ReadAll(entries, func(f found) (refusal, err error) {
		e, err := r.read(life, work, f)
		// A node without a record is not ours.
		if err == nil && e.recorded {
			err = r.relocate(life, work, &r.place, e, move{record: e.record})
		}

		if errors.Is(err, zk.ErrNoAuth) {
			return fmt.Errorf("%s: %w", f.node, err), nil
		}

		// If the node is gone, another client was faster.
		return nil, err
	})

	refusal := cmp.Or(refusals...)
	why := cmp.Or(err, refusal)
	if why != nil && !r.said && r.session.Err() == nil {
		r.recipe.Logger().Warn("queue entries not put back yet", "path", r.path, "error", why)
	}

	r.said = why != nil
	return refusal != nil, err
}
