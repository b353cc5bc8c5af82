package survey

import (
	"cmp"
	"context"
	"slices"
)

// members adds the members of a group, in order of joining. Where the place has a recipe already,
// they are not of it.
func (sv *survey) members(ctx context.Context, p *Place, names []name) error {
	if len(names) == 0 {
		return nil
	}

	nodes, err := sv.nodes(ctx, p.Path, names)
	if err != nil {
		return err
	}

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

// memberLibrary says whose member has this name. Ours and Curator's choose their names freely.
func memberLibrary(name string) Library {
	if parties.MatchString(name) {
		return Kazoo
	}
	return Unknown
}

// ephemeralBarriers returns the children that are barriers of ours that fall with a session, and
// claims the nodes beside them.
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
