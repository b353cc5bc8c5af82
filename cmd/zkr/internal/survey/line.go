package survey

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// A lineRecipe is a recipe whose contenders stand in line.
type lineRecipe struct {
	recipe Recipe
	kinds  []string // of one of these a child must be
	others []string // these belong to it, too
}

// The recipes with a line, the more telling names first.
var lineRecipes = []lineRecipe{
	{Semaphore, permitKinds, nil},
	{RWLock, slices.Concat(readKinds, writeKinds), lockKinds},
	{Lock, lockKinds, nil},
	{Election, latchKinds, nil},
}

// line recognises contenders in line by the names of their nodes.
func (sv *survey) line(ctx context.Context, l *listing, p *Place) error {
	for _, recipe := range lineRecipes {
		keeper := func(child string) bool { return recipe.recipe == Semaphore && child == layout.Keeper }
		inLine := len(l.names(recipe.kinds...)) > 0
		if !inLine && !slices.ContainsFunc(l.children, keeper) {
			continue
		}
		if recipe.recipe == Semaphore {
			data, _, err := sv.get(ctx, l.path)
			if p.Permits = permitsOf(data); err != nil || p.Permits == 0 && !inLine {
				return err
			}
		}

		p.Recipe = recipe.recipe
		l.claim(keeper)
		names := l.claimNames(slices.Concat(recipe.kinds, recipe.others)...)
		return sv.contend(ctx, p, names, holders(p, names))
	}
	return nil
}

// claimNames claims the contenders of these kinds, and returns them in order of arrival.
func (l *listing) claimNames(kinds ...string) []name {
	names := l.names(kinds...)
	l.claim(func(child string) bool { _, ok := parseName(child, kinds...); return ok })
	return names
}

// names returns the contenders of these kinds in order of arrival.
func (l *listing) names(kinds ...string) (names []name) {
	for _, child := range l.children {
		if n, ok := parseName(child, kinds...); ok {
			names = append(names, n)
		}
	}

	slices.SortStableFunc(names, name.compare)
	return names
}

// compare orders names by their sequence numbers alone. Those after the counter's end come last.
func (n name) compare(other name) int {
	return cmp.Compare(uint32(n.sequence), uint32(other.sequence))
}

// holders returns which of the contenders hold: one for each element of names.
func holders(p *Place, names []name) []bool {
	hold := make([]bool, len(names))
	for i, n := range names {
		switch p.Recipe {
		case Semaphore:
			hold[i] = i < p.Permits
		case RWLock:
			hold[i] = i == 0 || n.isReader() && hold[i-1] && names[i-1].isReader()
		case Once:
			hold[i] = !slices.ContainsFunc(names[:i], func(other name) bool { return other.key == n.key })
		default:
			hold[i] = i == 0
		}
	}
	return hold
}

func (n name) isReader() bool { return n.kind == "read" || n.kind == "READ" || n.kind == "rlock" }

// permitsOf returns the number of a semaphore's permits, which its path's node has, or 0.
func permitsOf(data []byte) int {
	permits, _ := strconv.Atoi(strings.TrimSpace(string(data)))
	return max(permits, 0)
}

// contend reads the contenders with these names, of which some hold.
func (sv *survey) contend(ctx context.Context, p *Place, names []name, hold []bool) error {
	if len(names) > sv.contenders {
		p.note("%d more in line were not read", len(names)-sv.contenders)
		p.Truncated = true
		p.More = len(names) - sv.contenders
		names = names[:sv.contenders]
	}

	nodes, err := sv.nodes(ctx, p.Path, names)
	if err != nil {
		return err
	}

	// Contenders that have gone since the listing are left out. That does not make others holders:
	// they may not know yet.
	state := make(map[string]State)
	for i, n := range names {
		state[n.node] = Waits
		if hold[i] {
			state[n.node] = Holds
		}
	}

	seen := make(map[string]string)
	for _, n := range nodes {
		c := n.contender(state[n.node])
		c.Mode = n.mode(p.Recipe)
		if len(names) == 1 && p.Recipe == Lock && strings.Contains(n.node, layout.Lingering) {
			c.Mode = "lingers" // with others in line it would be in use, or be given back
		}
		if sv.memory != nil && n.marksRelease() {
			sv.memory.note(join(p.Path, n.node), c.State)
		}
		if first := seen[n.owner]; n.owner != "" && first != "" && c.Orphan == "" {
			c.Orphan = fmt.Sprintf("second node of the contender of %s", first)
		}
		if n.owner != "" && seen[n.owner] == "" {
			seen[n.owner] = n.node
		}
		if n.sequence < 0 || n.sequence > protocol.MaxSequence {
			p.note("sequence numbers run out: delete the path while it is not in use")
		}
		p.Contenders = append(p.Contenders, c)
	}

	p.Notes = slices.Compact(p.Notes)

	// The holders first: keys of a once do not wait for each other.
	slices.SortStableFunc(p.Contenders, func(a, b Contender) int { return rank(a) - rank(b) })
	return nil
}

// marksRelease reports whether the contender's release makes a marker, if there were others when it
// came: those of ours do that hold alone. See [protocol.MarkerSuffix].
func (n node) marksRelease() bool {
	return n.library == Ours && (n.kind == "lock" || n.kind == "write")
}

func rank(c Contender) int {
	if c.State == Waits {
		return 1
	}
	return 0
}

// mode says what a contender asks for, where a recipe has several such things.
func (n name) mode(r Recipe) string {
	switch {
	case r == RWLock && n.isReader():
		return "read"
	case r == RWLock:
		return "write"
	case r == Once:
		return n.key
	}
	return ""
}

// contender describes the node of a contender in this state.
func (n node) contender(state State) Contender {
	c := Contender{
		Node: n.name.node, State: state, Library: n.library,
		Token: n.stat.Czxid, Since: created(n.stat), Owner: OwnerOf(n.data),
		Data: n.data[:min(len(n.data), maxData)], Cut: len(n.data) > maxData,
	}

	// The holder has written to its node when it was granted what it waited for.
	if o := c.Owner; state == Holds && !o.HeldSince.IsZero() {
		c.Held = o.HeldSince
		if o.AskedBack.IsZero() && n.stat.Mtime > 0 {
			c.Held = time.UnixMilli(n.stat.Mtime).UTC()
		}
	}

	switch {
	case isHidden(n.stat):
		c.Session = n.session
	case !isEphemeral(n.stat):
		c.Orphan = "not ephemeral: it stays when its owner has gone"
	case n.session != 0 && n.session != n.stat.EphemeralOwner:
		c.Session = n.stat.EphemeralOwner
		c.Orphan = fmt.Sprintf("its name is of session %#x", n.session)
	default:
		c.Session = n.stat.EphemeralOwner
	}
	return c
}
