package survey

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// agreed is what the members of our double barrier write to the node above them.
var agreed = regexp.MustCompile(`zkrecipes/doublebarrier n=(\d+) `)

// doubleBarrier recognises our double barrier: members below the node process, and the gate ready
// beside it.
func (sv *survey) doubleBarrier(ctx context.Context, l *listing, p *Place) error {
	if !l.has("process") {
		return nil
	}

	children, _, err := sv.children(ctx, join(l.path, "process"))
	if err != nil {
		return err
	}

	record, _, err := sv.get(ctx, join(l.path, "process"))
	if err != nil {
		return err
	}

	var names []name
	for _, child := range children {
		if n, ok := parseMember(child); ok {
			n.node = "process/" + n.node
			names = append(names, n)
		}
	}

	said := agreed.FindSubmatch(record)
	if len(names) == 0 && said == nil {
		return nil
	}

	p.Recipe = DoubleBarrier
	if said != nil {
		p.Permits, _ = strconv.Atoi(string(said[1]))
	} else {
		p.Permits = names[0].permits
	}

	gate := string(record)
	if l.has("ready") {
		ready, _, err := sv.get(ctx, join(l.path, "ready"))
		if err != nil {
			return err
		}
		gate += "\n" + string(ready)
	}

	l.claim(func(child string) bool { return child == "process" || child == "ready" || gateID.MatchString(child) })

	// The gate has the names of those that it has counted, one a line.
	counted := strings.Split(gate, "\n")
	slices.SortFunc(names, name.compare)
	nodes, err := sv.nodes(ctx, p.Path, names)
	if err != nil {
		return err
	}

	for _, n := range nodes {
		state := Waits
		if slices.Contains(counted, strings.TrimPrefix(n.name.node, "process/")) {
			state = Inside
		}
		p.Contenders = append(p.Contenders, n.contender(state))
	}

	slices.SortStableFunc(p.Contenders, func(a, b Contender) int { return rank(a) - rank(b) })
	if p.Holders() == 0 && slices.ContainsFunc(counted, func(line string) bool { _, ok := parseMember(line); return ok }) {
		p.note("the gate is open and no member is left: the next one that comes removes it")
	}
	return nil
}
