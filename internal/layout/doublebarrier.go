package layout

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A Double is the name of a member's node in a double barrier, taken apart.
type Double struct {
	Node     string // the whole name
	Owner    string // of the arrival
	Size     int    // how many members it expects
	Sequence int32
}

// DoublePrefix is what the name of the owner's next node begins with: the arrival's owner, how many
// nodes that has had, and the number of members that it expects. The second makes sure that a name
// is never used again: the owner lasts for several sessions, and a container that is created anew
// begins with sequence number 0.
func DoublePrefix(owner string, nodes, size int) string {
	return fmt.Sprintf("%s-%d-of-%d-member-", owner, nodes, size)
}

// ParseDouble takes the name of a member apart, and reports whether it is one.
func ParseDouble(node string) (m Double, ok bool) {
	_, rest, isOwned := ParseOwner(node)
	nodes, rest, _ := strings.Cut(rest, "-of-")
	n, sequence, _ := strings.Cut(rest, "-member-")
	if !isOwned || !isNumber(nodes) || !isNumber(n) {
		return Double{}, false
	}

	m.Node, m.Owner = node, node[:ownerLength]
	m.Size, _ = strconv.Atoi(n) // out of range, it is a number that no other member has
	m.Sequence, ok = ParseSequence(sequence)
	return m, ok
}

func isNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// The parts of a double barrier, below its path.
const (
	DoubleProcess = "process" // the node above the members; its data is the record
	DoubleReady   = "ready"   // the gate; beside it stands ready-<owner>, its ID
)

// CuratorMember matches the names of members of Curator's DistributedDoubleBarrier.
var CuratorMember = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// A DoubleRecord is the data of a double barrier's process node. The gate has the same data, but for
// the preamble.
type DoubleRecord struct {
	Preamble string // data of other clients, which are kept
	Size     int    // how many members all have agreed on; 0 if they have not
	From     int32  // members in line have this sequence number or a higher one; valid if Size is
	Rounds   int64  // how many have begun, the present one included

	// The gate that is open has an ID and at least one member. The name of the node beside ready
	// ends with the ID.
	Gate    string
	Members []string
}

// doubleMark is where our part of the data begins.
const doubleMark = "zkrecipes/doublebarrier n="

// Data returns what [ParseDoubleRecord] reads.
func (r DoubleRecord) Data() []byte {
	text := fmt.Sprintf("%s%s%d from=%d rounds=%d\n", r.Preamble, doubleMark, r.Size, r.From, r.Rounds)
	if len(r.Members) > 0 {
		text += r.Gate + "\n" + strings.Join(r.Members, "\n")
	}
	return []byte(text)
}

// ParseDoubleRecord reads a record. If the data have none, they are all preamble. Lines after the
// first are a gate if all but the first of them name members.
func ParseDoubleRecord(data []byte) (r DoubleRecord) {
	preamble, ours, _ := strings.Cut(string(data), doubleMark)
	numbers, gate, _ := strings.Cut(ours, "\n")
	if _, err := fmt.Sscanf(numbers, "%d from=%d rounds=%d", &r.Size, &r.From, &r.Rounds); err != nil {
		return DoubleRecord{Preamble: preamble}
	}

	r.Preamble = preamble
	id, members, _ := strings.Cut(gate, "\n")
	names := strings.Split(members, "\n")
	for _, name := range names {
		if _, ok := ParseDouble(name); !ok {
			return r
		}
	}
	r.Gate, r.Members = id, names
	return r
}
