package survey

import (
	"cmp"
	"container/heap"
	"context"
)

// batch is how many nodes are listed at a time. It does not depend on how long that takes, so two
// looks at the same tree read the same nodes.
const batch = readers

// A branch is a node of the tree that a survey looks at.
type branch struct {
	listing
	place    *Place // nil if the node was not read
	barriers map[string]bool
	below    []*branch // one for each child that no recipe has claimed, in order

	turn, cost float64 // when it is listed, and how much later each of its children
}

// tree looks at a path and what is below it, as far as the number of places reaches.
func (sv *survey) tree(ctx context.Context, path string) (*Place, error) {
	root := &branch{listing: listing{path: path}, cost: 1}
	next := turns{root}
	sv.places++ // root is free
	for len(next) > 0 && sv.places > 0 {
		now := make([]*branch, min(batch, len(next), sv.places))
		for i := range now {
			now[i] = heap.Pop(&next).(*branch)
		}
		sv.places -= len(now)

		errs := make([]error, len(now))
		parallel(len(now), func(i int) { errs[i] = sv.read(ctx, now[i]) })
		if err := cmp.Or(errs...); err != nil {
			return nil, err
		}

		for _, b := range now {
			for i, child := range b.children {
				// A subtree gets as many turns as each of its siblings: its share of what its parent gets.
				below := &branch{listing: listing{path: join(b.path, child)}}
				below.turn, below.cost = b.turn+float64(i+1)*b.cost, b.cost*float64(len(b.children))
				b.below = append(b.below, below)
				heap.Push(&next, below)
			}
		}
	}
	return root.place, sv.assemble(ctx, root)
}

// read lists a node, and says what it is used for.
func (sv *survey) read(ctx context.Context, b *branch) (err error) {
	if b.listing, err = sv.list(ctx, b.path); err != nil {
		return err
	}
	if b.place, err = sv.recognise(ctx, &b.listing); err == nil {
		b.barriers = b.ephemeralBarriers()
	}
	return err
}

// assemble looks at the children that no recipe has claimed. Where there is no recipe and
// nothing else, ephemeral ones are the members of a group. Elsewhere they are unknown.
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
			members = append(members, name{node: node, library: memberLibrary(node)})
		default:
			deeper = append(deeper, child)
		}
	}
	if p.Recipe == "" && (len(members) == 0 || len(deeper) > 0) { // a group has nothing but members
		p.Recipe = Directory
	}
	if err := sv.members(ctx, p, members); err != nil {
		return err
	}

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

// turns are the nodes to be listed, those first whose turn comes first.
type turns []*branch

func (t turns) Len() int { return len(t) }

func (t turns) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(t[i].turn, t[j].turn), cmp.Compare(t[i].path, t[j].path)) < 0
}

func (t turns) Swap(i, j int) { t[i], t[j] = t[j], t[i] }

func (t *turns) Push(b any) { *t = append(*t, b.(*branch)) }

func (t *turns) Pop() any {
	b := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return b
}
