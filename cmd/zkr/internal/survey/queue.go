package survey

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/queue"
)

// records is the node beside a queue's elements that has everything else.
const records = "zkrecipes"

// queue recognises a queue by its elements or by its records.
func (sv *survey) queue(ctx context.Context, l *listing, p *Place) error {
	isElement := func(child string) bool { return entries.MatchString(child) }
	if !l.has(records) && !slices.ContainsFunc(l.children, isElement) {
		return nil
	}

	p.Recipe = Queue
	hasRecords := l.has(records)
	elements := l.claim(func(child string) bool { return child == records || isElement(child) })
	elements = slices.DeleteFunc(elements, func(child string) bool { return child == records })

	p.Entries = &Entries{Length: len(elements), Created: layout.NextSequence(l.stat)}
	var owners map[string]string
	if hasRecords {
		var err error
		if owners, err = sv.beside(ctx, p); err != nil {
			return err
		}
	}

	// Reservations fire no watch, so the memory decides when to read the elements again.
	if sv.memory == nil || !sv.memory.elements(p) {
		if err := sv.readElements(ctx, p, elements); err != nil {
			return err
		}
	}

	// Queues of other libraries have no records.
	if !hasRecords {
		return nil
	}
	return sv.parties(ctx, p, owners)
}

// beside counts the reserved and delayed elements. It returns the directory of each.
func (sv *survey) beside(ctx context.Context, p *Place) (dirs map[string]string, err error) {
	dirs = make(map[string]string)
	for _, above := range []string{"held", "delayed"} {
		above = join(p.Path, records+"/"+above)
		children, _, err := sv.children(ctx, above)
		for _, dir := range children {
			var elements []string
			if elements, _, err = sv.children(ctx, join(above, dir)); err != nil {
				break
			}
			for _, element := range elements {
				if _, id, ok := strings.Cut(element, ","); ok {
					dirs[id] = dir
					p.Entries.Length++
				}
			}
		}

		if err != nil && !errors.Is(err, zk.ErrNoAuth) {
			return nil, err
		}
	}
	return dirs, nil
}

// readElements reads the elements of a queue (only the first for Curator's DistributedQueue).
func (sv *survey) readElements(ctx context.Context, p *Place, elements []string) error {
	curators := func(child string) bool { return strings.HasPrefix(child, "queue-") }
	var err error
	if slices.ContainsFunc(elements, curators) { // of DistributedQueue
		var stat *zk.Stat
		if stat, err = sv.session.Exists(ctx, join(p.Path, slices.Min(elements))); err == nil && stat != nil {
			p.Entries.Oldest, p.Entries.Looked = created(stat), 1
		}
	} else {
		err = sv.elements(ctx, p)
	}

	if err == nil && sv.memory != nil {
		sv.memory.keepElements(p)
	}
	return err
}

// elements reads the first elements (with a priority or without) and their reservations.
func (sv *survey) elements(ctx context.Context, p *Place) error {
	for i, err := range queue.New(sv.client, p.Path, queue.WithPriorities()).List(ctx) {
		if errors.Is(err, zk.ErrNoAuth) {
			p.note("its elements may not be read")
			return nil
		} else if err != nil {
			return err
		}

		// The first element is not always the oldest (priorities come first).
		known := !i.Since.IsZero()
		if known && (p.Entries.Oldest.IsZero() || i.Since.Before(p.Entries.Oldest)) {
			p.Entries.Oldest = i.Since.UTC()
		}

		p.Entries.Looked++
		if !i.HeldSince.IsZero() {
			p.Entries.Reserved++
			c := Contender{Node: i.ID, State: Holds, Library: Ours, Session: i.Holder, Since: i.HeldSince.UTC(), Held: i.HeldSince.UTC()}
			p.Contenders = append(p.Contenders, c)
		}

		if p.Entries.Looked >= sv.contenders {
			break
		}
	}
	return nil
}

// parties adds the clients that wait for an element or for room. It marks orphans: consumers with
// persistent nodes, and reservations of consumers that are not there. owners has the owner of each
// reserved element.
func (sv *survey) parties(ctx context.Context, p *Place, owners map[string]string) error {
	behind := make(map[string]Owner)
	gone := make(map[string]string) // why an owner's reservations are orphans
	for _, owner := range owners {
		gone[owner] = "its consumer has gone: the next one that comes puts it back"
	}

	for _, dir := range []string{"consumers", "waiting", "offering"} {
		nodes, err := sv.named(ctx, p, records+"/"+dir, func(child string) (name, bool) {
			owner, _, ok := recipe.ParseOwner(child + "-")
			return name{library: Ours, owner: child, session: owner.Session}, ok
		})

		if errors.Is(err, zk.ErrNoAuth) {
			if dir == "consumers" {
				clear(gone) // no consumer can be seen, so nothing is known
			}
			continue
		} else if err != nil {
			return err
		}

		for _, n := range nodes {
			c := n.contender(Waits)
			if dir == "consumers" {
				c.State, gone[n.owner], behind[n.owner] = Member, c.Orphan, c.Owner
			}
			if c.State == Waits || c.Orphan != "" {
				p.Contenders = append(p.Contenders, c)
			}
		}
	}

	for i := range p.Contenders {
		if c := &p.Contenders[i]; c.State == Holds {
			c.Orphan, c.Owner = gone[owners[c.Node]], behind[owners[c.Node]]
		}
	}
	return nil
}
