package queue

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// The names of entries begin with one of these, and end in a hyphen and a sequence number.
const (
	plainPrefix    = "qn"    // as the Java DistributedQueue writes it
	notedPrefix    = "item"  // ours: with notes, see [name]
	priorityPrefix = "entry" // kazoo's, with a priority of three digits
)

// lastSequence is the last number that a queue takes. The counter ends at 2^31-1, where servers
// give the same number again and again. 2^20 offers may be under way before all producers have
// noticed.
const lastSequence = 1<<31 - 1<<20

// nextNumber returns the number of the next entry. The server's counter has 2 for each child that
// was created, less the children that are there, and is negative in the second half of the numbers.
func nextNumber(queue *zk.Stat) int32 {
	return int32(uint32(queue.Cversion+queue.NumChildren) >> 1)
}

// defaultPriority is kazoo's.
const defaultPriority = 100

// A name is the name of an entry's node, taken apart:
//
//	qn-<sequence>
//	item-<due>-<since>-<attempts>-<priority>-<origin>-<sequence>
//	entry-<priority>-<sequence>
//
// The second form is for entries that were offered with a delay, put back, or are dead letters.
type name struct {
	node     string // the whole
	sequence int32
	priority int
	notes
}

// Notes are what the name of an entry says of it, besides its place.
type notes struct {
	due      int64  // it is not delivered before, in milliseconds since 1970
	since    int64  // when it was offered first, likewise; 0: when its node was created
	attempts int    // of its former nodes
	origin   string // of a dead letter: where from and why
}

// escaper keeps an origin in one part of a node's name.
var (
	escaper   = strings.NewReplacer("%", "%25", "/", "%2F", "-", "%2D", "\x00", "%00")
	unescaper = strings.NewReplacer("%2F", "/", "%2D", "-", "%00", "\x00", "%25", "%")
)

// prefix returns what an entry with these notes is called before its sequence number.
func (n notes) prefix(priority int) string {
	return fmt.Sprintf("%s-%d-%d-%d-%d-%s-", notedPrefix, n.due, n.since, n.attempts, priority, escaper.Replace(n.origin))
}

// parse takes a name apart. It reports whether it is that of an entry at all.
func (q *Queue) parse(node string) (n name, ok bool) { return parseName(node, q.priorities) }

func parseName(node string, priorities bool) (n name, ok bool) {
	i := strings.LastIndexByte(node, '-')
	if i < 0 {
		return n, false
	}
	if n, ok = parseAt(node, i, priorities); !ok && i > 0 && node[i-1] == '-' { // of a negative number
		n, ok = parseAt(node, i-1, priorities)
	}
	return n, ok
}

// parseAt takes a name apart whose sequence number comes after the hyphen at i.
func parseAt(node string, i int, priorities bool) (n name, ok bool) {
	n.node, n.priority = node, defaultPriority
	if n.sequence, ok = protocol.ParseSequence(node[i+1:]); !ok {
		return n, false
	}

	parts := strings.Split(node[:i], "-")
	switch {
	case len(parts) == 1 && parts[0] == plainPrefix:
		return n, true
	case len(parts) == 2 && parts[0] == priorityPrefix && priorities && len(parts[1]) == 3:
		priority, ok := parseNumber(parts[1], 31)
		n.priority = int(priority)
		return n, ok
	case len(parts) == 6 && parts[0] == notedPrefix:
		ok = n.parseNotes(parts[1:])
		return n, ok
	}
	return n, false
}

func (n *name) parseNotes(parts []string) (ok bool) {
	due, ok1 := parseNumber(parts[0], 63)
	since, ok2 := parseNumber(parts[1], 63)
	attempts, ok3 := parseNumber(parts[2], 31)
	priority, ok4 := parseNumber(parts[3], 31)
	n.notes = notes{int64(due), int64(since), int(attempts), unescaper.Replace(parts[4])}
	n.priority = int(priority)
	return ok1 && ok2 && ok3 && ok4
}

// parseNumber reads digits and nothing else.
func parseNumber(digits string, bits int) (n uint64, ok bool) {
	n, err := strconv.ParseUint(digits, 10, bits)
	return n, err == nil
}

// compareNames orders entries by priority, and then by sequence number. Negative numbers, which
// follow the counter's end, come last.
func compareNames(a, b name) int {
	if a.priority != b.priority {
		return cmp.Compare(a.priority, b.priority)
	}
	return cmp.Compare(a.sequence-b.sequence, 0)
}

// names returns the entries among the children of a queue, in order.
func (q *Queue) names(children []string) []name {
	names := make([]name, 0, len(children))
	for _, child := range children {
		if n, ok := q.parse(child); ok {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, compareNames)
	return names
}
