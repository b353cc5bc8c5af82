package survey

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
)

// records is the node beside the elements of a queue that has all else.
const records = "zkrecipes"

// queue recognises a queue by its elements, or by its records.
func (sv *survey) queue(ctx context.Context, l *listing, p *Place) error {
	isElement := func(child string) bool { return entries.MatchString(child) }
	if !l.has(records) && !slices.ContainsFunc(l.children, isElement) {
		return nil
	}

	p.Recipe = Queue
	hasRecords := l.has(records)
	elements := l.claim(func(child string) bool { return child == records || isElement(child) })
	if hasRecords {
		elements = slices.DeleteFunc(elements, func(child string) bool { return child == records })
	}

	// The server's counter has 2 for each child that was created, less the children that are there.
	// After half the numbers it is negative.
	created := int32(uint32(l.stat.Cversion+l.stat.NumChildren) >> 1)
	p.Entries = &Entries{Length: len(elements), Created: created}
	if sv.memory == nil || !sv.memory.elements(p) {
		if err := sv.readElements(ctx, p, elements); err != nil {
			return err
		}
	}
	if !hasRecords {
		return nil
	}
	return sv.consumers(ctx, p)
}

// readElements looks at the elements themselves.
func (sv *survey) readElements(ctx context.Context, p *Place, elements []string) error {
	curators := func(child string) bool { return strings.HasPrefix(child, "queue-") }
	var err error
	if slices.ContainsFunc(elements, curators) {
		err = sv.oldest(ctx, p, slices.Min(elements))
	} else {
		err = sv.elements(ctx, p, slices.ContainsFunc(elements, func(child string) bool {
			return strings.HasPrefix(child, "entry-")
		}))
	}
	if err == nil && sv.memory != nil {
		sv.memory.keepElements(p)
	}
	return err
}

// oldest notes when an element of Curator's DistributedQueue was offered.
func (sv *survey) oldest(ctx context.Context, p *Place, first string) error {
	stat, err := sv.session.Exists(ctx, join(p.Path, first))
	if err == nil && stat != nil {
		p.Entries.Oldest, p.Entries.Looked = created(stat), 1
	}
	return err
}

// elements looks at the first elements, and at who has reserved them.
func (sv *survey) elements(ctx context.Context, p *Place, priorities bool) error {
	var options []queue.Option
	if priorities {
		options = append(options, queue.WithPriorities())
	}

	for i, err := range queue.New(sv.client, p.Path, options...).List(ctx) {
		if errors.Is(err, zk.ErrNoAuth) {
			p.note("its elements may not be read")
			return nil
		} else if err != nil {
			return err
		}

		known := !i.Since.IsZero()
		if known && (p.Entries.Oldest.IsZero() || i.Since.Before(p.Entries.Oldest)) {
			p.Entries.Oldest = i.Since
		}
		p.Entries.Looked++
		if !i.HeldSince.IsZero() {
			p.Entries.Reserved++
			p.Contenders = append(p.Contenders, Contender{
				Node: i.ID, State: Holds, Library: Ours, Session: i.Holder, Since: i.HeldSince,
			})
		}
		if p.Entries.Looked >= sv.contenders {
			break
		}
	}
	return nil
}

// consumers adds those that wait for an element.
func (sv *survey) consumers(ctx context.Context, p *Place) error {
	const waiting = records + "/waiting"
	children, _, err := sv.children(ctx, join(p.Path, waiting))
	if errors.Is(err, zk.ErrNoAuth) {
		return nil
	} else if err != nil {
		return err
	}

	var names []name
	for _, child := range children {
		if owner, _, ok := protocol.ParseOwner(child); ok {
			names = append(names, name{node: waiting + "/" + child, library: Ours, owner: owner.String(), session: owner.Session})
		}
	}

	nodes, err := sv.nodes(ctx, p.Path, names)
	if err != nil {
		return err
	}

	slices.SortFunc(nodes, func(a, b node) int { return int(a.stat.Czxid - b.stat.Czxid) })
	for _, n := range nodes {
		p.Contenders = append(p.Contenders, n.contender(Waits))
	}
	return nil
}
