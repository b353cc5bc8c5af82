package survey

import (
	"context"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// doubleBarrier recognises our double barrier: members are below the node process, and the gate is
// the node ready beside it.
func (sv *survey) doubleBarrier(ctx context.Context, l *listing, p *Place) error {
	if !l.has(layout.DoubleProcess) {
		return nil
	}

	nodes, err := sv.named(ctx, p, layout.DoubleProcess, parseMember)
	if err != nil {
		return err
	}

	data, _, err := sv.get(ctx, join(l.path, layout.DoubleProcess))
	if err != nil {
		return err
	}

	record := layout.ParseDoubleRecord(data)

	// Any path can have a child named process. Ours has members or a record.
	if len(nodes) == 0 && record.Size == 0 {
		return nil
	}

	p.Recipe = DoubleBarrier
	if p.Permits = record.Size; p.Permits == 0 {
		p.Permits = nodes[0].permits
	}

	// The gate lists the members that it has counted (a name a line).
	counted := record.Members
	if l.has(layout.DoubleReady) {
		ready, _, err := sv.get(ctx, join(l.path, layout.DoubleReady))
		if err != nil {
			return err
		}

		counted = append(counted, strings.Split(string(ready), "\n")...)
	}
	l.claim(func(child string) bool {
		return child == layout.DoubleProcess || child == layout.DoubleReady || gateID.MatchString(child)
	})

	// A counted member is inside. The others wait for the gate.
	for _, n := range nodes {
		state := Waits
		if slices.Contains(counted, strings.TrimPrefix(n.name.node, layout.DoubleProcess+"/")) {
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
