package survey

import (
	"cmp"
	"context"
	"slices"
)

// members adds the members of a group in order of joining. If the place has a recipe already, the
// nodes are not part of it.
func (sv *survey) members(ctx context.Context, p *Place, names []name) error {
	if len(names) == 0 {
		return nil
	}

	nodes, err := sv.nodes(ctx, p.Path, names)
	if err != nil {
		return err
	}

	// The names say nothing about the order.
	slices.SortFunc(nodes, func(a, b node) int {
		return cmp.Or(cmp.Compare(a.stat.Czxid, b.stat.Czxid), cmp.Compare(a.name.node, b.name.node))
	})

	group := p.Recipe == ""
	for _, n := range nodes {
		if group {
			p.Recipe = Group
			p.Contenders = append(p.Contenders, n.contender(Member))
		} else {
			p.Unknown = append(p.Unknown, UnknownNode{n.name.node, true, created(n.stat)})
		}
	}
	return nil
}

// ephemeralBarriers returns the children that are ephemeral barriers of ours, and claims the nodes
// beside them.
func (l *listing) ephemeralBarriers() map[string]bool {
	barriers := make(map[string]bool)
	l.claim(func(child string) bool {
		base := barrierID.FindStringSubmatch(child)
		if base == nil || !l.has(base[1]) {
			return false
		}

		barriers[base[1]] = true
		return true
	})
	return barriers
}
