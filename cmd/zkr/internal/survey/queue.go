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
	elements = slices.DeleteFunc(elements, func(child string) bool { return child == records })

	p.Entries = &Entries{Length: len(elements), Created: layout.NextSequence(l.stat)}
	var owners map[string]string
	if hasRecords {
		var err error
		if owners, err = sv.beside(ctx, p); err != nil {
			return err
		}
	}
	if sv.memory == nil || !sv.memory.elements(p) {
		if err := sv.readElements(ctx, p, elements); err != nil {
			return err
		}
	}
	if !hasRecords {
		return nil
	}
	return sv.parties(ctx, p, owners)
}

// beside counts the elements that are reserved or delayed. It returns the directory of each.
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

// readElements looks at the elements themselves.
func (sv *survey) readElements(ctx context.Context, p *Place, elements []string) error {
	curators := func(child string) bool { return strings.HasPrefix(child, "queue-") }
	var err error
	if slices.ContainsFunc(elements, curators) { // of DistributedQueue
		var stat *zk.Stat
		if stat, err = sv.session.Exists(ctx, join(p.Path, slices.Min(elements))); err == nil && stat != nil {
			p.Entries.Oldest, p.Entries.Looked = created(stat), 1
		}
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

// parties adds those that wait for an element or for room, and says behind what nobody stands: the
// nodes of consumers that stay, and what consumers have that are not there. Owners are those of the
// reserved elements.
func (sv *survey) parties(ctx context.Context, p *Place, owners map[string]string) error {
	gone := make(map[string]string) // why nobody stands behind what an owner has
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
				clear(gone) // it is not known
			}
			continue
		} else if err != nil {
			return err
		}
		for _, n := range nodes {
			c := n.contender(Waits)
			if dir == "consumers" {
				c.State, gone[n.owner] = Member, c.Orphan
			}
			if c.State == Waits || c.Orphan != "" {
				p.Contenders = append(p.Contenders, c)
			}
		}
	}

	for i := range p.Contenders {
		if c := &p.Contenders[i]; c.State == Holds {
			c.Orphan = gone[owners[c.Node]]
		}
	}
	return nil
}
