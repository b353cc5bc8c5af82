package layout

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A Double is the parsed name of a member's node in a double barrier.
type Double struct {
	Node     string // the whole name
	Owner    string // of the arrival
	Size     int    // how many members it expects
	Sequence int32
}

// DoublePrefix returns the prefix of the name of an owner's next node: the owner of the arrival,
// how many nodes the arrival has had, and the number of members it expects. The count makes sure
// that no name is used twice. (An owner lasts for several sessions, and a container that is created
// again begins with sequence number 0.)
func DoublePrefix(owner string, nodes, size int) string {
	return fmt.Sprintf("%s-%d-of-%d-member-", owner, nodes, size)
}

// ParseDouble parses the name of a member, and reports whether it is one.
func ParseDouble(node string) (m Double, ok bool) {
	_, rest, isOwned := ParseOwner(node)

	nodes, rest, _ := strings.Cut(rest, "-of-")
	n, sequence, _ := strings.Cut(rest, "-member-")
	if !isOwned || !isNumber(nodes) || !isNumber(n) {
		return Double{}, false
	}

	// If the size is out of range, it's a number that no other member has. So the error doesn't
	// matter.
	m.Node, m.Owner = node, node[:ownerLength]
	m.Size, _ = strconv.Atoi(n)
	m.Sequence, ok = ParseSequence(sequence)
	return m, ok
}

func isNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// The parts of a double barrier, below its path.
const (
	DoubleProcess = "process" // the node above the members; its data is the record
	DoubleReady   = "ready"   // the gate; beside it is ready-<owner>, its ID
)

// CuratorMember matches the names of members of Curator's DistributedDoubleBarrier.
var CuratorMember = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// A DoubleRecord is the data of a double barrier's process node. The gate has the same data,
// without the preamble.
type DoubleRecord struct {
	Preamble string // data of other clients, which we keep
	Size     int    // how many members all have agreed on, or 0
	From     int32  // members in line have at least this sequence number; valid if Size is
	Rounds   int64  // how many rounds have begun, the present round included

	// An open gate has an ID and at least one member. The name of the node beside ready ends with
	// the ID.
	Gate    string
	Members []string
}

// doubleMark is the beginning of our part of the data.
const doubleMark = "zkrecipes/doublebarrier n="

// Data returns the data that [ParseDoubleRecord] reads.
func (r DoubleRecord) Data() []byte {
	text := fmt.Sprintf("%s%s%d from=%d rounds=%d\n", r.Preamble, doubleMark, r.Size, r.From, r.Rounds)
	if len(r.Members) > 0 {
		text += r.Gate + "\n" + strings.Join(r.Members, "\n")
	}
	return []byte(text)
}

// ParseDoubleRecord reads a record. If data has no record, all of it is preamble. The lines after
// the first are a gate if each of them (but the ID) names a member.
func ParseDoubleRecord(data []byte) (r DoubleRecord) {
	preamble, ours, _ := strings.Cut(string(data), doubleMark)
	numbers, gate, _ := strings.Cut(ours, "\n")
	if _, err := fmt.Sscanf(numbers, "%d from=%d rounds=%d", &r.Size, &r.From, &r.Rounds); err != nil {
		return DoubleRecord{Preamble: preamble}
	}

	// Without members the gate is closed, whatever its ID.
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
