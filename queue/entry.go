package queue

import (
	"cmp"
	"context"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// A found is an entry of a listing, and where it is.
type found struct {
	layout.Entry
	node  string // below the queue's path
	owner string // of the claim; empty if it is not reserved
	due   int64  // if it is delayed, in milliseconds since 1970
}

// beside reports whether the entry is reserved or delayed. Its data then follows its record.
func (f *found) beside() bool { return f.owner != "" || f.due != 0 }

// entries returns the entries among the children of a queue, in the order of delivery. Negative
// numbers, which follow the counter's end, come last.
func (p *place) entries(children []string) []found {
	all := make([]found, 0, len(children))
	for _, child := range children {
		if e, ok := layout.ParseEntry(child, p.priorities); ok {
			all = append(all, found{Entry: e, node: "/" + child})
		}
	}
	slices.SortFunc(all, inOrder)
	return all
}

func inOrder(a, b found) int {
	if a.Priority != b.Priority {
		return cmp.Compare(a.Priority, b.Priority)
	}
	return cmp.Compare(a.Sequence-b.Sequence, 0)
}

// heldIn and delayedIn return the entries among the children of a directory of reserved or delayed
// entries, which have the ID in the names of their nodes.

func heldIn(owner string, children []string) (all []found) {
	for _, child := range children {
		if id, ok := layout.ParseHeld(child); ok {
			all = append(all, found{Entry: withID(id), node: heldNode + "/" + owner + "/" + child, owner: owner})
		}
	}
	return all
}

func delayedIn(bucket string, children []string) (all []found) {
	for _, child := range children {
		if due, id, ok := layout.ParseDelayed(child); ok {
			all = append(all, found{Entry: withID(id), node: delayedNode + "/" + bucket + "/" + child, due: due})
		}
	}
	return all
}

// withID returns the entry with an ID, as it was before it moved.
func withID(id string) layout.Entry {
	e, ok := layout.ParseEntry(id, true)
	if !ok {
		e = layout.Entry{Priority: layout.DefaultPriority}
	}
	e.ID = id
	return e
}

// A reading is an entry that was read, and what is known of it.
type reading struct {
	found
	stat     *zk.Stat
	data     []byte
	record   layout.Record
	recorded bool // there is a record
}

// read reads an entry, with what is known of it. If there is a record beside an entry, they were
// created together.
func (p *place) read(ctx context.Context, s *protocol.Session, f found) (*reading, error) {
	data, stat, err := s.Get(ctx, p.path+f.node)
	if err != nil {
		return nil, err
	}
	r := &reading{found: f, stat: stat, data: data}
	switch {
	case f.beside():
		r.record, r.data, r.recorded = layout.ParseRecord(data)
	case f.Node != f.ID || stat.Version > 0: // see [move]
		b, beside, err := s.Get(ctx, p.path+returnedPath(f.ID))
		if ignore(err, zk.ErrNoNode, zk.ErrNoAuth) != nil {
			return nil, err
		}
		if err == nil && beside.Czxid == stat.Czxid {
			r.record, _, r.recorded = layout.ParseRecord(b)
		}
		fallthrough
	default:
		r.record.Node = f.Node
	}
	r.record.ID = f.ID
	if r.record.Since == 0 {
		r.record.Since = max(stat.Ctime, 0)
	}
	return r, nil
}

// removal are the operations that remove an entry as it was read.
func (p *place) removal(s *protocol.Session, r *reading) []any {
	ops := []any{p.deletion(s, r.node, r.stat.Version)}
	if r.recorded && !r.beside() {
		ops = append(ops, p.deletion(s, returnedPath(r.ID), -1))
	}
	return ops
}

// end removes an entry as it was read, and does more, all or nothing. It returns at which of the
// further operations it has failed. After a lost answer it has succeeded if the entry is gone.
func (p *place) end(ctx context.Context, s *protocol.Session, r *reading, more ...any) (failed int, err error) {
	removal := p.removal(s, r)
	ops := slices.Concat(removal, more)
	done, err := transact(ctx, s, func() []any { return ops }, func() {}, func(ctx context.Context) (bool, error) {
		stat, err := s.Exists(ctx, p.path+r.node)
		return err == nil && (stat == nil || stat.Czxid != r.stat.Czxid), ignore(err, zk.ErrNoAuth)
	})
	return done.failed(err) - len(removal), err
}

// A snapshot is what stands beside the entries that nobody has: what is reserved, what is delayed,
// and the state of their directories.
type snapshot struct {
	entries []found
	state   []zk.Stat
}

func (p *place) snapshot(ctx context.Context, s *protocol.Session) (shot snapshot, err error) {
	list := func(node string) []string {
		names, stat, failed := p.children(ctx, s, node)
		if err = cmp.Or(err, failed); stat != nil {
			shot.state = append(shot.state, zk.Stat{Czxid: stat.Czxid, Cversion: stat.Cversion})
		}
		slices.Sort(names)
		return names
	}
	for _, owner := range list(heldNode) {
		shot.entries = append(shot.entries, heldIn(owner, list(heldNode+"/"+owner))...)
	}
	for _, bucket := range list(delayedNode) {
		shot.entries = append(shot.entries, delayedIn(bucket, list(delayedNode+"/"+bucket))...)
	}
	return shot, err
}

// snapshots is how often list looks for a moment at which nothing has moved.
const snapshots = 4

// list returns the entries, in order, at a moment after the call began. While entries move all the
// time, steady is false: one that has moved meanwhile may be missing or be out of date.
func (p *place) list(ctx context.Context, s *protocol.Session) (all []found, steady bool, err error) {
	if err := s.Sync(ctx, p.path); err != nil {
		return nil, false, err
	}
	before, err := p.snapshot(ctx, s)
	if err != nil {
		return nil, false, err
	}
	for n := 0; n < snapshots && !steady; n++ {
		children, _, err := p.children(ctx, s, "")
		if err != nil {
			return nil, false, err
		}
		after, err := p.snapshot(ctx, s)
		if err != nil {
			return nil, false, err
		}
		all = slices.Concat(before.entries, after.entries, p.entries(children))
		steady, before = slices.Equal(before.state, after.state), after
	}

	slices.SortStableFunc(all, inOrder)
	seen := make(map[string]bool)
	return slices.DeleteFunc(all, func(f found) bool {
		again := seen[f.ID]
		seen[f.ID] = true
		return again
	}), steady, nil
}
