package line

import (
	"slices"
	"strconv"
	"strings"

	"github.com/zkrecipes/zkrecipes/protocol"
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
var Locks = []Kind{{"lock-", true}, {"__lock__", true}}

// These are the kinds that contenders of every line respect. Nodes of ours begin with an owner.
// Those of shared may belong to another library.
var (
	ours = []string{
		"read-", "write-", // package rwlock
		"permit-", // package semaphore
		"-run-",   // package once
	}
	shared = []string{
		"lock-",                // packages lock and election, Curator's InterProcessMutex, zk.Lock
		"__READ__", "__WRIT__", // Curator's InterProcessReadWriteLock
		"__rlock__", "__lock__", // kazoo's ReadLock, WriteLock and Lock
	}
)

// writeLock is the kind of contenders for ZooKeeper's own WriteLock. The ID of the session stands
// between it and the number: x-<session>-<sequence>.
const writeLock = "x-"

// replaceable are the kinds of writers. The node of a reader may take the place of theirs.
var replaceable = []string{"write-", "__WRIT__", "__lock__"}

// Replaceable reports whether another node may have taken the contender's place in line once its
// own is gone, as that of a reader takes a writer's.
func (n Name) Replaceable() bool { return slices.Contains(replaceable, n.Kind) }

// name takes the name of a contender apart, which may be of another kind than those of the line.
func (l *Line) name(node string) (Name, bool) {
	if n, ok := ParseName(node, l.names...); ok {
		return n, true
	}
	n, ok := ParseName(node, shared...)
	if _, _, owned := protocol.ParseOwner(node); owned && !ok {
		n, ok = ParseName(node, ours...)
	} else if !ok {
		n, ok = parseWriteLock(node)
	}
	n.other = ok
	return n, ok
}

// parseWriteLock takes the name of a node of WriteLock apart. Its session is decimal in Java, and
// has 16 hex digits in C.
func parseWriteLock(node string) (Name, bool) {
	const digits = 10
	rest, ok := strings.CutPrefix(node, writeLock)
	i := len(rest) - digits - 1
	if !ok || i < 1 || rest[i] != '-' {
		return Name{}, false
	}

	session := rest[:i]
	_, java := strconv.ParseInt(session, 10, 64)
	_, c := strconv.ParseUint(session, 16, 64)
	if java != nil && (c != nil || len(session) != 16) {
		return Name{}, false
	}
	n, ok := ParseName(node, "-") // what is left is the number
	n.Kind = writeLock
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
		return strings.HasSuffix(kind, "lock-") || isGoZooKeepers(n.Node)
	case "__lock__", "__rlock__": // with kazoo's extra_lock_patterns=["-lock-"]
		return slices.Contains([]string{"lock-", "__lock__", "__rlock__"}, kind)
	case "__READ__", "__WRIT__":
		return kind == "__READ__" || kind == "__WRIT__"
	case writeLock: // the number is what follows the last dash
		return strings.HasSuffix(kind, "-")
	}
	return true
}

// isGoZooKeepers reports whether a node of kind lock- has a GUID as zk.Lock writes it. Curator's
// has dashes.
func isGoZooKeepers(node string) bool {
	const guid = len("_c_0123456789abcdef0123456789abcdef-")
	return strings.HasPrefix(node, "_c_") && strings.HasPrefix(node[min(guid, len(node)):], "lock-")
}
