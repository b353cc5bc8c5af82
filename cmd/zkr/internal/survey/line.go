package survey

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A lineRecipe is a recipe whose contenders wait in line.
type lineRecipe struct {
	recipe Recipe
	kinds  []string // a child must be of one of these kinds
	others []string // children of these kinds belong to the recipe too
}

// The recipes with a line. More specific names come first.
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

		// Without permits in its node, a path with a keeper alone is no semaphore.
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

// holders reports for each of the names whether that contender holds.
func holders(p *Place, names []name) []bool {
	// Each recipe lets other contenders in: the first, the first readers, or the first of each key.
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

// permitsOf returns the number of permits in the data of a semaphore's node (or 0).
func permitsOf(data []byte) int {
	permits, _ := strconv.Atoi(strings.TrimSpace(string(data)))
	return max(permits, 0)
}

// contend reads the contenders with these names. hold says which of them hold.
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

	// Leave out contenders that have gone since the listing. The next contenders don't hold because
	// of that: they may not have noticed yet.
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
			c.Mode = "lingers" // with others in line it is in use or will be given back
		}

		// A contender that waited and then held alone makes a marker when it releases: see
		// recipe.MarkerSuffix.
		if sv.memory != nil && n.library == Ours && (n.kind == "lock" || n.kind == "write") {
			sv.memory.note(join(p.Path, n.node), c.State)
		}

		// An owner has one node. A second node is left over from a request whose outcome was
		// unknown.
		if first := seen[n.owner]; n.owner != "" && first != "" && c.Orphan == "" {
			c.Orphan = fmt.Sprintf("second node of the contender of %s", first)
		}

		if n.owner != "" && seen[n.owner] == "" {
			seen[n.owner] = n.node
		}

		if n.sequence < 0 || n.sequence > recipe.MaxSequence {
			p.note("sequence numbers run out: delete the path while it is not in use")
		}

		p.Contenders = append(p.Contenders, c)
	}

	p.Notes = slices.Compact(p.Notes)
	if p.Recipe == Lock {
		p.Use = use(nodes)
	}

	// Holders come first because the keys of a once have lines of their own.
	slices.SortStableFunc(p.Contenders, func(a, b Contender) int { return rank(a) - rank(b) })
	return nil
}

// use returns the use of a line of locks: a lock or an election. Both have the same names, so only
// the data of the nodes can tell. A lock writes owner data (unless its user gives other data), a
// candidate publishes any value, and zkr elect marks its own.
func use(nodes []node) string {
	lock, election := false, false
	for _, n := range nodes {
		_, said := protocol.ParseProcess(n.data)
		candidate := said && OwnerOf(n.data).Candidate
		election = election || candidate
		lock = lock || said && !candidate || n.library == ZKLock || strings.Contains(n.node, layout.Lingering)
	}

	switch {
	case lock && !election:
		return "lock"
	case election && !lock:
		return "election"
	}
	return "lock or election"
}
