package protocol

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// sequenceFormat is how ZooKeeper appends a number to the name of a sequential node, negative ones included.
const sequenceFormat = "%010d"

// maxSequence is the last sequence number that a recipe works with. The counter's end is 2^31-1, where a real
// server gives the same number again and again; 2^20 creates may be under way before everybody has noticed.
const maxSequence = 1<<31 - 1<<20

// A Name is the name of a contender's node, taken apart.
//
// Our own are <session, 16 hex digits>-<nonce, 8 hex digits>-<kind><sequence>, where the kind is "lock-", "read-"
// or "write-". Nodes of other libraries have a kind and a sequence number only.
type Name struct {
	Node     string // the whole name
	Kind     string // as it is spelt, with its separators: "lock-", "__lock__"
	Sequence int32  // negative after the counter's end
	Owner    Owner  // zero for nodes of other libraries
}

// An Owner tells a contender from all others, those of its own session included. The zero Owner is nobody.
type Owner struct {
	Session int64
	Nonce   uint32
}

// String is the part of a node's name that the owner makes out.
func (o Owner) String() string { return fmt.Sprintf("%016x-%08x", uint64(o.Session), o.Nonce) }

const ownerLength = 16 + 1 + 8

// parseOwner reads what String wrote at the start of s.
func parseOwner(s string) (Owner, bool) {
	if len(s) < ownerLength || s[16] != '-' {
		return Owner{}, false
	}
	session, ok1 := parseHex(s[:16])
	nonce, ok2 := parseHex(s[17:ownerLength])
	return Owner{int64(session), uint32(nonce)}, ok1 && ok2
}

// parseHex reads digits of which there are 16 at most. It refuses upper case, which we never write.
func parseHex(digits string) (n uint64, ok bool) {
	for _, d := range []byte(digits) {
		switch {
		case '0' <= d && d <= '9':
			n = n<<4 | uint64(d-'0')
		case 'a' <= d && d <= 'f':
			n = n<<4 | uint64(d-'a'+10)
		default:
			return 0, false
		}
	}
	return n, true
}

// ParseName takes the name of a node apart if it ends in one of the kinds and a sequence number, and tells
// whether it does. Anything may stand before the kind: other libraries put identifiers of their own there.
// Of several kinds that fit the longest counts. ParseName is safe for concurrent use.
func ParseName(node string, kinds ...string) (Name, bool) {
	n := Name{Node: node}
	for _, kind := range kinds {
		for _, digits := range []int{10, 11} { // with a sign
			i := len(node) - digits - len(kind)
			if i < 0 || node[i:i+len(kind)] != kind || len(kind) <= len(n.Kind) {
				continue
			}
			sequence, ok := parseSequence(node[i+len(kind):])
			if !ok {
				continue
			}
			n.Kind, n.Sequence, n.Owner = kind, sequence, Owner{}
			if o, ok := parseOwner(node); ok && i == ownerLength+1 && node[ownerLength] == '-' {
				n.Owner = o
			}
		}
	}
	if n.Kind == "" {
		return Name{}, false
	}
	return n, true
}

// parseSequence reads a number as ZooKeeper writes it, and in no other spelling.
func parseSequence(number string) (int32, bool) {
	n, err := strconv.ParseInt(number, 10, 32)
	plain := len(number) == 10 && number[0] >= '0' // which needs no comparison
	return int32(n), err == nil && (plain || number == fmt.Sprintf(sequenceFormat, n))
}

// Compare orders names by their sequence numbers alone. It is negative when n comes first.
func (n Name) Compare(other Name) int { return cmp.Compare(n.Sequence, other.Sequence) }

// parseLine returns the contenders among the children of a line, first come first. Numbers after the counter's end are
// not among them: they come after all of ours, which end long before, and with them there would be no order.
func parseLine(children, kinds []string) []Name {
	names := make([]Name, 0, len(children))
	for _, child := range children {
		if n, ok := ParseName(child, kinds...); ok && n.Sequence >= 0 {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, Name.Compare)
	return names
}
