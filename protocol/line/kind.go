package line

import (
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// A Kind is a kind of contenders. Its name is what stands before the sequence number in their
// nodes' names.
//
// Exclusive says that the recipe's [Blockers] grant such a contender only when no other is ahead of
// it. The line relies on that and does not check it: when a holder releases, it tells the next
// waiter that nothing is ahead.
type Kind struct {
	Name      string // with its separators and without a slash, as in "lock-"
	Exclusive bool
}

// Locks are the kinds of contenders for an exclusive lock: ours, which are also those of Apache
// Curator and of go-zookeeper, and kazoo's.
var Locks = []Kind{{"lock-", true}, {"__lock__", true}, {Lingering, true}}

// Lingering is the kind of contenders for a lock that may keep their node while they do not use it,
// until another contender comes. Other libraries take it for "lock-", with which it ends.
const Lingering = layout.Lingering

// Replaceable reports whether another node may have taken the contender's place in line once its
// own is gone, as that of a reader takes a writer's.
func (n Name) Replaceable() bool { return layout.Contender{Kind: n.Kind}.Replaceable() }

// name takes the name of a contender apart, which may be of another kind than those of the line.
func (l *Line) name(node string) (Name, bool) {
	if n, ok := ParseName(node, l.names...); ok {
		return n, true
	}
	c, ok := layout.AnyContender(node)
	n := nameOf(c)
	n.other = ok
	return n, ok
}

// blockers returns what blocks the contender at self of a line that has contenders of all kinds. Of
// those ahead of it, the recipe decides about its own kinds, and each of the others blocks. While
// it waits for the nearest, what is further ahead need not be watched.
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

// holds reports whether the contender at i of a line has got what it came for: by the request's rule,
// or as a reader, or by the rules of its own library if it is of another kind.
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

// overlooks returns a contender behind self that neither waits for it nor may hold with it.
func (r *Request) overlooks(line []Name, self int) (Name, bool) {
	for _, n := range line[self+1:] {
		if !n.respects(r.Kind) && len(r.blockers([]Name{n, line[self]}, 1)) > 0 {
			return n, true
		}
	}
	return Name{}, false
}

// respects reports whether the contender waits for one of this kind that is ahead of it, or fails.
// All of ours wait. Of libraries that we do not know it is assumed.
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
	case layout.WriteLock: // the number is what follows the last dash
		return strings.HasSuffix(kind, "-")
	}
	return true
}
