package survey

import (
	"context"
	"slices"
)

// leases recognises Curator's InterProcessSemaphoreV2. It has a lock for clients that ask, and
// leases for clients that hold.
func (sv *survey) leases(ctx context.Context, l *listing, p *Place) error {
	if !l.has("leases") || !l.has("locks") {
		return nil
	}

	p.Recipe = Semaphore
	l.claim(func(child string) bool { return child == "leases" || child == "locks" })
	for _, part := range []struct {
		dir   string
		kinds []string
		state State
	}{{"leases", leaseKinds, Holds}, {"locks", lockKinds, Waits}} {
		nodes, err := sv.named(ctx, p, part.dir, func(child string) (name, bool) { return parseName(child, part.kinds...) })
		if err != nil {
			return err
		}

		for _, n := range nodes {
			p.Contenders = append(p.Contenders, n.contender(part.state))
		}
	}
	return nil
}

// foreignMembers recognises the double barriers of Curator and kazoo (by their gate) and kazoo's
// semaphore (by the number of its leases).
func (sv *survey) foreignMembers(ctx context.Context, l *listing, p *Place) error {
	isMember := func(child string) bool { return uuids.MatchString(child) || kazoos.MatchString(child) }
	if !slices.ContainsFunc(l.children, isMember) {
		return nil
	}

	// A gate makes it a double barrier.
	state := Holds
	if l.has("ready") {
		p.Recipe, state = DoubleBarrier, Inside
	} else {
		data, _, err := sv.get(ctx, l.path)
		if err != nil {
			return err
		}

		if p.Permits = permitsOf(data); p.Permits == 0 {
			return nil // any group can have such members
		}

		p.Recipe = Semaphore
	}

	var names []name
	for _, child := range l.claim(func(child string) bool { return child == "ready" || isMember(child) }) {
		switch {
		case uuids.MatchString(child):
			names = append(names, name{node: child, library: Curator})
		case child != "ready":
			names = append(names, name{node: child, library: Kazoo})
		}
	}

	nodes, err := sv.nodes(ctx, p.Path, names)
	if err != nil {
		return err
	}

	slices.SortFunc(nodes, func(a, b node) int { return int(a.stat.Czxid - b.stat.Czxid) })
	for _, n := range nodes {
		p.Contenders = append(p.Contenders, n.contender(state))
	}
	return nil
}
