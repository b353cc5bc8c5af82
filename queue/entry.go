package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A found is an entry of a listing, and its place.
type found struct {
	layout.Entry
	elsewhere string // its path below the queue's path, if it is reserved or delayed
	owner     string // owner of the claim; empty if the entry is not reserved
	due       int64  // in milliseconds since 1970; 0 if the entry is not delayed
}

// node returns the entry's path below the queue's path.
func (f *found) node() string { return cmp.Or(f.elsewhere, "/"+f.Node) }

// beside reports whether the entry is reserved or delayed. If so, its node contains its record and
// then its data.
func (f *found) beside() bool { return f.elsewhere != "" }

// order returns the entries among the children of a queue in the order of delivery, as numbers
// (which are sorted much faster than entries). Negative sequence numbers (after the end of the
// counter) come last.
func (p *place) order(children []string) []uint64 {
	order := make([]uint64, 0, len(children))
	for i, child := range children {
		if e, ok := layout.ParseEntry(child, p.priorities); ok {
			order = append(order, uint64(e.Priority)<<54|uint64(uint32(e.Sequence))<<22|uint64(i))
		}
	}
	slices.Sort(order)
	return order
}

func priorityOf(number uint64) int   { return int(number >> 54) }
func sequenceOf(number uint64) int32 { return int32(number >> 22) }

// entries returns the entries among the children of a queue with these numbers.
func (p *place) entries(children []string, numbers []uint64) []found {
	all := make([]found, len(numbers))
	for i, number := range numbers {
		all[i].Entry, _ = layout.ParseEntry(children[number&(1<<22-1)], p.priorities) // which is an entry, see order
	}
	return all
}

func inOrder(a, b found) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Sequence-b.Sequence, 0))
}

// besideIn returns the entries among the children of a directory of reserved or delayed entries.
// The names of their nodes contain their IDs.
func besideIn(dir string, children []string) (all []found) {
	owner, held := strings.CutPrefix(dir, heldNode+"/")
	for _, child := range children {
		if number, id, ok := layout.ParseBeside(child); ok && held {
			all = append(all, found{Entry: withID(id), elsewhere: dir + "/" + child, owner: owner})
		} else if ok {
			all = append(all, found{Entry: withID(id), elsewhere: dir + "/" + child, due: number})
		}
	}
	return all
}

// withID returns the entry with an ID, as if it had never moved. Without a place it comes last.
func withID(id string) layout.Entry {
	e, ok := layout.ParseEntry(id, true)
	if !ok {
		e = layout.Entry{Node: id, Priority: layout.DefaultPriority, Sequence: math.MaxInt32}
	}
	e.ID = id
	return e
}

// A reading is an entry that was read, with its record.
type reading struct {
	found
	stat     *zk.Stat
	data     []byte
	record   layout.Record
	recorded bool // the record exists
}

// read reads an entry and its record. A record beside an entry counts only if both were created
// together.
func (p *place) read(ctx context.Context, s *recipe.Session, f found) (*reading, error) {
	data, stat, err := s.Get(ctx, p.path+f.node())
	if err != nil {
		return nil, err
	}

	r := &reading{found: f, stat: stat, data: data}
	switch {
	case f.beside():
		r.record, r.data, r.recorded = layout.ParseRecord(data)
	// An entry that has come back has another name or a version (see [move]).
	case f.Node != f.ID || stat.Version > 0:
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

// removal returns the operations that remove an entry as it was read. (The name of a claim is never
// used again. So its version doesn't matter, and a claim that an operator has written ends as
// well.)
func (p *place) removal(s *recipe.Session, r *reading) []any {
	version := r.stat.Version
	if r.owner != "" {
		version = -1
	}

	ops := []any{p.deletion(s, r.node(), version)}
	if r.recorded && !r.beside() {
		ops = append(ops, p.deletion(s, returnedPath(r.ID), -1))
	}
	return ops
}

// end removes an entry as it was read and does more (all of it or nothing). It returns which of the
// further operations failed, and whether an answer was lost. After that, end succeeds if the entry
// is gone.
func (p *place) end(ctx context.Context, s *recipe.Session, r *reading, more ...any) (failed int, lost bool, err error) {
	removal := p.removal(s, r)
	ops := slices.Concat(removal, more)
	done, err := transact(ctx, s, func() []any { return ops }, func() {}, func(ctx context.Context) (bool, error) {
		lost = true
		gone, err := p.isGone(ctx, s, r)
		return gone, ignore(err, zk.ErrNoAuth)
	})
	return done.failed(err) - len(removal), lost, err
}

// isGone reports whether the entry that was read is gone. (A claim of unknown outcome has no czxid,
// and its name is never used again.)
func (p *place) isGone(ctx context.Context, s *recipe.Session, r *reading) (bool, error) {
	stat, err := s.Exists(ctx, p.path+r.node())
	return err == nil && (stat == nil || r.stat.Czxid != 0 && stat.Czxid != r.stat.Czxid), err
}

// snapshot returns the reserved and the delayed entries, with the state of their directories.
func (p *place) snapshot(ctx context.Context, s *recipe.Session) (entries []found, state []zk.Stat, err error) {
	list := func(node string) []string {
		names, stat, failed := p.children(ctx, s, node)
		if err = cmp.Or(err, failed); stat != nil {
			state = append(state, zk.Stat{Czxid: stat.Czxid, Cversion: stat.Cversion})
		}

		slices.Sort(names)
		return names
	}

	for _, node := range []string{heldNode, delayedNode} {
		for _, name := range list(node) {
			dir := node + "/" + name
			entries = append(entries, besideIn(dir, list(dir))...)
		}
	}

	return entries, state, err
}

// snapshots is how often list tries to find a moment without moves.
const snapshots = 4

// list returns all entries (in order) at a moment after the call began. If entries move all the
// time, steady is false: an entry that has moved meanwhile can be missing or listed at a former
// place.
func (p *place) list(ctx context.Context, s *recipe.Session) (all []found, steady bool, err error) {
	if err := s.Sync(ctx, p.path); err != nil {
		return nil, false, err
	}

	beside, before, err := p.snapshot(ctx, s)
	if err != nil {
		return nil, false, err
	}

	for n := 0; n < snapshots && !steady; n++ {
		children, _, err := p.children(ctx, s, "")
		if err != nil {
			return nil, false, err
		}

		now, after, err := p.snapshot(ctx, s)
		if err != nil {
			return nil, false, err
		}

		// The queue was listed between two equal snapshots, so no entry has moved meanwhile.
		if steady = slices.Equal(before, after); steady {
			beside = nil
		}
		all = slices.Concat(beside, now, p.entries(children, p.order(children)))
		beside, before = now, after
	}

	slices.SortStableFunc(all, inOrder)
	seen := make(map[string]bool)
	return slices.DeleteFunc(all, func(f found) bool {
		// Entries with one ID can be two entries, if the numbers have begun again.
		again := !steady && seen[f.ID]
		seen[f.ID] = true
		return again
	}), steady, nil
}

// A move says where an entry goes, and with which record.
//
// An entry that comes back gets its old name and its data as offered. Its attempts, age and reason
// are in a record beside it, which the same transaction creates. So equal czxids say that the two
// belong together. A reader knows from the entry's name or version that there can be a record
// (because the data is set after the create). A record whose entry was taken by another library is
// swept.
type move struct {
	record layout.Record
	tail   bool  // to a new place
	due    int64 // if not 0, to the delayed entries
}

// returnVersions is the number of versions that returning entries have, in turn. So a consumer that
// has read the entry earlier can't reserve it with the record of that time.
const returnVersions = 8

// arrival returns the operations that create an entry at its new place, with its record.
func (p *place) arrival(s *recipe.Session, data []byte, m move) []any {
	if m.tail {
		m.record.Node = ""
	}

	if m.due != 0 {
		node := bucketOf(m.due) + "/" + layout.DelayedEntry(m.due, m.record.ID)
		return []any{p.creation(s, node, m.record.Append(data), 0)}
	}

	node := "/" + m.record.Node
	m.record.Node = ""
	m.record.Returns++
	record := p.creation(s, returnedPath(m.record.ID), m.record.Append(nil), 0)
	if node == "/" {
		return []any{record, p.creation(s, "/"+layout.MovedEntry(m.record.ID), data, zk.FlagSequence)}
	}

	ops := []any{record, p.creation(s, node, nil, 0)}
	// Each write raises the entry's version by one.
	for range m.record.Returns % returnVersions {
		ops = append(ops, p.setting(s, node, nil))
	}

	return append(ops, p.setting(s, node, data))
}

// longestReturn returns the size of the largest transaction that puts back an entry without data.
func (p *place) longestReturn(s *recipe.Session) int {
	const number = "0000000000"
	owner := s.NewOwner().String()
	id := layout.DeadID(owner + "-" + number)
	record := layout.Record{
		ID: id, Node: layout.MovedEntry(id) + number, Since: math.MaxInt64, Attempts: math.MaxInt32, Returns: returnVersions - 2,
		Reason: strings.Repeat(`"`, layout.ReasonLength(s.RequestLimit())),
	}
	from := p.deletion(s, heldNode+"/"+owner+"/"+number+","+id, 0)
	return recipe.MultiSize(append(p.arrival(s, nil, move{record: record}), from)...)
}

// relocate moves an entry that was read to p, in one transaction. If the entry is not at its old
// place any more, relocate returns [zk.ErrNoNode] or [zk.ErrBadVersion]. It creates directories as
// needed. If the entry's place is taken, the entry goes to the tail. If a record is in the way, the
// same transaction deletes it. (A deletion by itself could hit the record of another client that
// has just moved the entry.)
func (p *place) relocate(ctx context.Context, s *recipe.Session, from *place, r *reading, m move) error {
	var sweep []any // deletes the record in the way
	for {
		if m.record.Node == "" || m.tail {
			if err := p.numbered(ctx, s); err != nil {
				return err
			}
		}

		failed, _, err := from.end(ctx, s, r, slices.Concat(sweep, p.arrival(s, r.data, m))...)
		switch missing := errors.Is(err, zk.ErrNoNode); {
		case err == nil, failed < 0, !missing && !errors.Is(err, zk.ErrNodeExists):
			return err
		// The record in the way is gone.
		case failed < len(sweep):
			sweep = nil
		case missing:
			dir := returnedNode
			if m.due != 0 {
				dir = bucketOf(m.due)
			}
			if err := p.ensure(ctx, s, dir); err != nil {
				return err
			}
		// Another entry is due in the same millisecond.
		case m.due != 0:
			m.due++
		// The record has lost its entry, or a container has begun its numbers again.
		case failed == len(sweep):
			sweep = []any{p.deletion(s, returnedPath(m.record.ID), -1)}
		default:
			m.tail = true
		}
	}
}

const forMoves = 1 << 19 // numbers behind those for offers

// numbered returns an error if the queue has no numbers left for a move.
func (p *place) numbered(ctx context.Context, s *recipe.Session) error {
	stat, err := s.Exists(ctx, p.path)
	if err != nil || stat == nil {
		return err
	}
	// Entries that were offered before the last number can still move.
	if next := layout.NextSequence(stat); next > layout.MaxSequence+forMoves || next < 0 {
		return fmt.Errorf("%w: of the entries at %s", protocol.ErrSequenceExhausted, p.path)
	}
	return nil
}

// describe returns an origin for readers.
func describe(r layout.Record) string {
	if r.Origin == nil {
		return ""
	}
	return r.Origin.Queue + "/" + r.Origin.ID + " after " + strconv.Itoa(r.Origin.Attempts) + " attempts: " + r.Reason
}
