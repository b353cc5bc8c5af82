package recipe

import "github.com/zkrecipes/zkrecipes/internal/layout"

// An Owner differs for any two contenders, also of the same session. Contenders of other libraries
// have the zero Owner.
type Owner struct {
	Session int64
	Nonce   uint32
}

// String returns the beginning of the name of the owner's node: 16 hex digits, a hyphen, and 8 hex
// digits.
func (o Owner) String() string { return layout.Owner(o).String() }

// ParseOwner reads the owner at the beginning of a node's name and returns the rest after the next
// hyphen. It reports whether there is an owner.
func ParseOwner(name string) (o Owner, rest string, ok bool) {
	parsed, rest, ok := layout.ParseOwner(name)
	return Owner(parsed), rest, ok
}

// SequenceFormat is how ZooKeeper appends a number (which can be negative) to the name of a
// sequential node.
const SequenceFormat = layout.SequenceFormat

// MaxSequence is the last sequence number that a recipe works with. At the counter's end (2^31-1),
// servers give out the same number again and again. The distance leaves room for 2^20 creates that
// are under way when the first contender notices.
const MaxSequence = layout.MaxSequence

// ParseSequence reads a sequence number in ZooKeeper's spelling, and in no other spelling.
func ParseSequence(number string) (int32, bool) { return layout.ParseSequence(number) }
