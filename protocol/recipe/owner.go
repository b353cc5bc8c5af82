package recipe

import "github.com/zkrecipes/zkrecipes/internal/layout"

// An Owner tells a contender from all others, those of its own session included. The zero Owner
// stands for clients of other libraries.
type Owner struct {
	Session int64
	Nonce   uint32
}

// String returns the part of a node's name that says whose it is: 16 hex digits, a hyphen and 8
// more.
func (o Owner) String() string { return layout.Owner(o).String() }

// ParseOwner reads the owner at the beginning of a node's name, and returns what comes after it and
// a hyphen. It reports whether there is an owner.
func ParseOwner(name string) (o Owner, rest string, ok bool) {
	parsed, rest, ok := layout.ParseOwner(name)
	return Owner(parsed), rest, ok
}

// SequenceFormat is how ZooKeeper appends a number to the name of a sequential node, negative ones
// included.
const SequenceFormat = layout.SequenceFormat

// MaxSequence is the last sequence number that a recipe works with. The counter's end is 2^31-1,
// where servers give the same number again and again. That leaves room for 2^20 creates that are
// under way when the first contender notices.
const MaxSequence = layout.MaxSequence

// ParseSequence reads a sequence number as ZooKeeper writes it, and in no other spelling.
func ParseSequence(number string) (int32, bool) { return layout.ParseSequence(number) }
