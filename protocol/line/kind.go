package line

import (
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// A Kind is a kind of contenders. Its name comes before the sequence number in the names of nodes.
//
// Exclusive means that the recipe's [Blockers] grant such a contender only if no contender is
// ahead. The line relies on that and doesn't check it: the release of a holder tells the next
// waiter that no contender is ahead.
type Kind struct {
	Name      string // with its separators and without a slash ("lock-", for example)
	Exclusive bool
}

// Locks are the kinds of contenders for an exclusive lock: our own (Apache Curator and go-zookeeper
// spell theirs the same way) and kazoo's.
var Locks = []Kind{{"lock-", true}, {"__lock__", true}, {Lingering, true}}

// Lingering is the kind of contenders for a lock that can keep their node while they don't use it,
// until another contender comes. Other libraries take it for "lock-" (its ending).
const Lingering = layout.Lingering

// Replaceable reports whether another node may have taken the contender's place in line once the
// contender's own node is gone. (A reader's node can replace a writer's.)
func (n Name) Replaceable() bool { return layout.IsReplaceable(n.Kind) }

// name parses the name of a contender, of any kind.
func (l *Line) name(node string) (Name, bool) {
	if n, ok := ParseName(node, l.names...); ok {
		return n, true
	}
	c, ok := layout.AnyContender(node)
	n := nameOf(c)
	n.other = ok
	return n, ok
}

// blockers returns the blockers of the contender at self. The recipe decides about contenders of
// its own kinds. Each earlier contender of another kind blocks. (While a contender waits for the
// nearest of those, it needn't watch what is further ahead.)
func (r *Request) blockers(line []Name, self int) []Name {
	rule := r.Blockers
	if rule == nil {
		rule = Exclusive
	}
	own := ownKinds(line)
	if len(own) == len(line) {
		return rule(line, self)
	}

	blockers := rule(own, slices.Index(own, line[self]))
	for i, n := range slices.Backward(line[:self]) {
		if n.other && (len(blockers) == 0 || n.Sequence > blockers[len(blockers)-1].Sequence) {
			return line[i : i+1]
		}
	}

	return blockers
}

// holds reports whether the contender at i is granted: by the request's rule, as a reader or by
// the rules of its own library if it is of another kind.
func (r *Request) holds(line []Name, i int) bool {
	n := line[i]
	if !n.other && !layout.IsReader(n.Kind) {
		return len(r.blockers(line, i)) == 0
	}
	return !slices.ContainsFunc(line[:i], func(m Name) bool {
		return n.respects(m.Kind) && !(layout.IsReader(n.Kind) && layout.IsReader(m.Kind))
	})
}

// ownKinds returns the contenders of the line's own kinds.
func ownKinds(line []Name) []Name {
	isOther := func(n Name) bool { return n.other }
	if !slices.ContainsFunc(line, isOther) {
		return line
	}
	return slices.DeleteFunc(slices.Clone(line), isOther)
}

// overlooks returns a contender behind self that doesn't wait for it although the two can't hold
// together.
func (r *Request) overlooks(line []Name, self int) (Name, bool) {
	for _, n := range line[self+1:] {
		if !n.respects(r.Kind) && len(r.blockers([]Name{n, line[self]}, 1)) > 0 {
			return n, true
		}
	}
	return Name{}, false
}

// respects reports whether the contender waits for an earlier contender of this kind (or fails).
// Our own contenders wait. We assume the same of libraries that we don't know.
func (n Name) respects(kind string) bool {
	if n.Owner.Session != 0 {
		return true
	}

	switch n.Kind {
	case "lock-": // Curator sorts the names of other kinds as strings; zk.Lock fails
		return strings.HasSuffix(kind, "lock-") || layout.IsGoZooKeepers(n.Node)
	case "__lock__", "__rlock__": // with kazoo's extra_lock_patterns=["-lock-"]
		return strings.HasSuffix(kind, "lock-") || kind == "__lock__" || kind == "__rlock__"
	case "latch-": // Curator sorts the names of other kinds as strings
		return kind == "latch-"
	case "__READ__", "__WRIT__":
		return kind == "__READ__" || kind == "__WRIT__"
	case layout.WriteLock: // it reads the number behind the last dash
		return strings.HasSuffix(kind, "-")
	}

	return true
}
