package layout

import (
	"slices"
	"strconv"
	"strings"
)

// A Contender is the parsed name of a contender's node.
//
// Our names are <session, 16 hex digits>-<nonce, 8 hex digits>-<kind><sequence>. Names of other
// libraries have only a kind and a sequence number.
type Contender struct {
	Node     string // the whole name
	Kind     string // as it is spelt, with its separators ("lock-", "__lock__")
	Sequence int32  // negative beyond the counter's end
	Owner    Owner  // zero for nodes of other libraries
}

// ParseContender parses the name of a node if it ends in one of the kinds and a sequence number,
// and reports whether it does. Anything can come before the kind, because other libraries put
// identifiers of their own there. If several kinds fit, the longest counts. ParseContender is safe
// for concurrent use.
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

			// An owner counts only right before the kind: no other library's name has it there.
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

// AnyContender parses the name of a contender of any recipe of this module, and of Curator, kazoo,
// zk.Lock and ZooKeeper's WriteLock.
func AnyContender(node string) (Contender, bool) {
	n, ok := ParseContender(node, shared...)
	if owner, _, owned := ParseOwner(node); owned && !ok {
		n, ok = ParseContender(node, ours...)
		n.Owner = owner // even if there's something between the owner and the kind
		return n, ok
	} else if !ok {
		return parseWriteLock(node)
	}
	return n, ok
}

// Contenders of every line respect these kinds. Names of kinds in ours begin with an owner. Names
// of kinds in shared may come from another library.
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

// Lingering is the kind of contenders that can keep their node while they don't use the lock, until
// another contender comes. Other libraries take it for "lock-" (its ending).
const Lingering = "linger-lock-"

// WriteLock is the kind of contenders for ZooKeeper's own WriteLock. The session ID comes between
// the kind and the number: x-<session>-<sequence>.
const WriteLock = "x-"

// IsReplaceable reports whether another node may take the place in line of a contender of this kind
// once its own node is gone (a reader's node may replace a writer's).
func IsReplaceable(kind string) bool {
	return slices.Contains([]string{"write-", "__WRIT__", "__lock__"}, kind)
}

// IsReader reports whether contenders of this kind share a lock.
func IsReader(kind string) bool {
	return slices.Contains([]string{"read-", "__READ__", "__rlock__"}, kind)
}

// parseWriteLock parses the name of a WriteLock node. Its session is decimal if Java wrote it, and
// has 16 hex digits if C did.
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

	// The rest, behind the last hyphen, is the number.
	n, ok := ParseContender(node, "-")
	n.Kind = WriteLock
	return n, ok
}

// IsGoZooKeepers reports whether a node of kind lock- has a GUID as zk.Lock writes it. (Curator's
// GUID has dashes.)
func IsGoZooKeepers(node string) bool {
	const guid = len("_c_0123456789abcdef0123456789abcdef-")
	return strings.HasPrefix(node, "_c_") && strings.HasPrefix(node[min(guid, len(node)):], "lock-")
}

// MarkerSuffix is appended to a node's name to make the name of its marker. The marker says how the
// node was deleted.
const MarkerSuffix = "-passed"

// Keeper is the name of a persistent child that keeps a line's node alive (usually a container).
// Its data is the number of permits.
const Keeper = "keep"
