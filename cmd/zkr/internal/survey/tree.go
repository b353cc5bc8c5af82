package survey

import (
	"cmp"
	"context"
	"slices"
)

// batch is the number of nodes that are listed at a time. It must not depend on time, so that two
// looks at the same tree read the same nodes.
const batch = readers

// A branch is a node of the tree that a survey reads.
type branch struct {
	listing
	place    *Place // nil if the node was not read
	barriers map[string]bool
	below    []*branch // the children that no recipe has claimed, in order

	turn, cost float64 // the node's place in the order of listing, and the distance between its children's places
}

// tree surveys a path and everything below it, as far as the number of places allows.
func (sv *survey) tree(ctx context.Context, path string) (*Place, error) {
	root := &branch{listing: listing{path: path}, cost: 1}
	next := []*branch{root} // in order of their turns
	sv.places++             // root doesn't count
	for len(next) > 0 && sv.places > 0 {
		now := next[:min(batch, len(next), sv.places)]
		next = slices.Clone(next[len(now):])
		sv.places -= len(now)

		errs := make([]error, len(now))
		parallel(len(now), func(i int) { errs[i] = sv.read(ctx, now[i]) })
		if err := cmp.Or(errs...); err != nil {
			return nil, err
		}

		for _, b := range now {
			for i, child := range b.children {
				// Each subtree gets the same share of its parent's turns. So a large subtree can't
				// keep the survey from its siblings.
				below := &branch{listing: listing{path: join(b.path, child)}}
				below.turn, below.cost = b.turn+float64(i+1)*b.cost, b.cost*float64(len(b.children))
				b.below = append(b.below, below)

				// A child has the next turns of its parent, so those after the last turn are left
				// out.
				if at, _ := slices.BinarySearchFunc(next, below, (*branch).compare); at < sv.places {
					next = slices.Insert(next[:min(len(next), sv.places-1)], at, below)
				}
			}
		}
	}
	return root.place, sv.assemble(ctx, root)
}

// read lists a node and finds its recipe.
func (sv *survey) read(ctx context.Context, b *branch) (err error) {
	if b.listing, err = sv.list(ctx, b.path); err != nil {
		return err
	}
	if b.place, err = sv.recognise(ctx, &b.listing); err == nil {
		b.barriers = b.ephemeralBarriers()
	}
	return err
}

// assemble decides about the children that no recipe has claimed. If a place has only ephemeral
// children, they are the members of a group. Otherwise such children are unknown.
func (sv *survey) assemble(ctx context.Context, b *branch) error {
	p := b.place
	if b.stat == nil || b.hidden {
		return nil
	}

	var members []name
	var deeper []*branch
	for i, child := range b.below {
		switch node := b.children[i]; {
		case child.place == nil:
			p.Truncated = true
			p.Unread = append(p.Unread, node)
		case child.stat == nil:
		case isEphemeral(child.stat) && !b.barriers[node]:
			member := name{node: node, library: Unknown} // our members and Curator's can have any name
			if parties.MatchString(node) {
				member.library = Kazoo
			}
			members = append(members, member)
		default:
			deeper = append(deeper, child)
		}
	}

	if p.Recipe == "" && (len(members) == 0 || len(deeper) > 0) { // a group has only members
		p.Recipe = Directory
	}

	if err := sv.members(ctx, p, members); err != nil {
		return err
	}

	// Beside a recipe, unused nodes are unknown. In a directory they are places.
	for _, child := range deeper {
		if r := child.place.Recipe; p.Recipe != Directory && (r == Leaf || r == Value || r == Empty) {
			p.Unknown = append(p.Unknown, UnknownNode{child.path[len(join(p.Path, "")):], false, created(child.stat)})
			continue
		}

		if err := sv.assemble(ctx, child); err != nil {
			return err
		}

		p.Below = append(p.Below, child.place)
	}
	return nil
}

// compare orders nodes by their turns.
func (b *branch) compare(other *branch) int {
	return cmp.Or(cmp.Compare(b.turn, other.turn), cmp.Compare(b.path, other.path))
}

// recognise finds the recipe of a node and claims the children that belong to it.
func (sv *survey) recognise(ctx context.Context, l *listing) (*Place, error) {
	p := &Place{Path: l.path}
	switch {
	case l.stat == nil:
		p.Recipe = Missing
		return p, nil
	case l.hidden:
		p.Recipe = Hidden
	case len(l.children) == 0 && isEphemeral(l.stat):
		p.Recipe = Barrier
		p.note("falls with session %#x", l.stat.EphemeralOwner)
	case len(l.children) == 0 && l.stat.DataLength > 0:
		p.Recipe = Value
	case len(l.children) == 0 && l.stat.Cversion != 0:
		p.Recipe = Empty
	case len(l.children) == 0:
		p.Recipe = Leaf
	}

	p.Since = created(l.stat)
	if p.Recipe != "" {
		return p, nil
	}

	// The first recipe that fits wins, so more specific names come first.
	for _, read := range []func(context.Context, *listing, *Place) error{
		sv.queue, sv.doubleBarrier, sv.once, sv.line, sv.leases, sv.foreignMembers,
	} {
		if err := read(ctx, l, p); err != nil || p.Recipe != "" {
			return p, err
		}
	}
	return p, nil
}
