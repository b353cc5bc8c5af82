package layout

import (
	"slices"
	"strconv"
	"strings"
)

// A Contender is the name of a contender's node, taken apart.
//
// Our own are <session, 16 hex digits>-<nonce, 8 hex digits>-<kind><sequence>. Nodes of other
// libraries have a kind and a sequence number only.
type Contender struct {
	Node     string // the whole name
	Kind     string // as it is spelt, with its separators: "lock-", "__lock__"
	Sequence int32  // negative after the counter's end
	Owner    Owner  // zero for nodes of other libraries
}

// ParseContender takes the name of a node apart if it ends in one of the kinds and a sequence number,
// and reports whether it does. Anything may stand before the kind: other libraries put identifiers
// of their own there. Of several kinds that fit the longest counts. ParseContender is safe for
// concurrent use.
func ParseContender(node string, kinds ...string) (Contender, bool) {
	n := Contender{Node: node}
	for _, kind := range kinds {
		for _, digits := range []int{10, 11} { // with a sign
			i := len(node) - digits - len(kind)
			if i < 0 || node[i:i+len(kind)] != kind || len(kind) <= len(n.Kind) {
				continue
			}
			sequence, ok := ParseSequence(node[i+len(kind):])
			if !ok {
				continue
			}

			n.Kind, n.Sequence, n.Owner = kind, sequence, Owner{}
			if o, rest, ok := ParseOwner(node); ok && i == len(node)-len(rest) {
				n.Owner = o
			}
		}
	}
	if n.Kind == "" {
		return Contender{}, false
	}
	return n, true
}

// AnyContender takes the name of a contender of a recipe of this module, of Curator, kazoo, zk.Lock
// or ZooKeeper's WriteLock apart.
func AnyContender(node string) (Contender, bool) {
	n, ok := ParseContender(node, shared...)
	if owner, _, owned := ParseOwner(node); owned && !ok {
		n, ok = ParseContender(node, ours...)
		n.Owner = owner // also where something stands between it and the kind
		return n, ok
	} else if !ok {
		return parseWriteLock(node)
	}
	return n, ok
}

// These are the kinds that contenders of every line respect. Nodes of ours begin with an owner.
// Those of shared may belong to another library.
var (
	ours = []string{
		"read-", "write-", // package rwlock
		"permit-", // package semaphore
		"-run-",   // package once
	}
	shared = []string{
		"lock-", Lingering, // packages lock and election, Curator's InterProcessMutex, zk.Lock
		"__READ__", "__WRIT__", // Curator's InterProcessReadWriteLock
		"__rlock__", "__lock__", // kazoo's ReadLock, WriteLock and Lock
		"latch-", // Curator's LeaderLatch
	}
)

// Lingering is the kind of contenders for a lock that may keep their node while they do not use it,
// until another contender comes. Other libraries take it for "lock-", with which it ends.
const Lingering = "linger-lock-"

// WriteLock is the kind of contenders for ZooKeeper's own WriteLock. The ID of the session stands
// between it and the number: x-<session>-<sequence>.
const WriteLock = "x-"

// replaceable are the kinds of writers. The node of a reader may take the place of theirs.
var replaceable = []string{"write-", "__WRIT__", "__lock__"}

// Replaceable reports whether another node may take the contender's place in line once its own is
// gone, as that of a reader takes a writer's.
func (c Contender) Replaceable() bool { return slices.Contains(replaceable, c.Kind) }

// IsReader reports whether contenders of this kind share a lock.
func IsReader(kind string) bool {
	return slices.Contains([]string{"read-", "__READ__", "__rlock__"}, kind)
}

// parseWriteLock takes the name of a node of WriteLock apart. Its session is decimal in Java, and
// has 16 hex digits in C.
func parseWriteLock(node string) (Contender, bool) {
	const digits = 10
	rest, ok := strings.CutPrefix(node, WriteLock)
	i := len(rest) - digits - 1
	if !ok || i < 1 || rest[i] != '-' {
		return Contender{}, false
	}

	session := rest[:i]
	_, java := strconv.ParseInt(session, 10, 64)
	_, c := strconv.ParseUint(session, 16, 64)
	if java != nil && (c != nil || len(session) != 16) {
		return Contender{}, false
	}
	n, ok := ParseContender(node, "-") // what is left is the number
	n.Kind = WriteLock
	return n, ok
}

// IsGoZooKeepers reports whether a node of kind lock- has a GUID as zk.Lock writes it. Curator's
// has dashes.
func IsGoZooKeepers(node string) bool {
	const guid = len("_c_0123456789abcdef0123456789abcdef-")
	return strings.HasPrefix(node, "_c_") && strings.HasPrefix(node[min(guid, len(node)):], "lock-")
}

// MarkerSuffix makes the name of a node's marker, which says something about how the node was
// deleted.
const MarkerSuffix = "-passed"

// Keeper is the name of a persistent child that keeps the node of a line, a container as a rule, and
// the number of permits in its data.
const Keeper = "keep"
