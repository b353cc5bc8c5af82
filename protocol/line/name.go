package line

import (
	"cmp"
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A Name is the parsed name of a contender's node.
//
// Our names are <session, 16 hex digits>-<nonce, 8 hex digits>-<kind><sequence>. Names of other
// libraries have only a kind and a sequence number.
type Name struct {
	Node     string       // the whole name
	Kind     string       // as it is spelt, with its separators ("lock-", "__lock__")
	Sequence int32        // negative after the counter's end
	Owner    recipe.Owner // zero for nodes of other libraries

	other bool // the line doesn't have its kind
}

// ParseName parses the name of a node if it ends in one of the kinds and a sequence number, and
// reports whether it does. Anything can come before the kind, because other libraries put
// identifiers of their own there. If several kinds fit, the longest counts. ParseName is safe for
// concurrent use.
func ParseName(node string, kinds ...string) (Name, bool) {
	c, ok := layout.ParseContender(node, kinds...)
	return nameOf(c), ok
}

func nameOf(c layout.Contender) Name {
	return Name{Node: c.Node, Kind: c.Kind, Sequence: c.Sequence, Owner: recipe.Owner(c.Owner)}
}

// Compare orders names by their sequence numbers alone. It is negative when n comes first.
func (n Name) Compare(other Name) int { return cmp.Compare(n.Sequence, other.Sequence) }

// Among returns the contenders among the children of the line's node, in order of arrival. It
// includes contenders of other kinds. It ignores numbers after the counter's end: there is no order
// among them, and all of ours come long before.
func (l *Line) Among(children []string) []Name {
	names := make([]Name, 0, len(children))
	for _, child := range children {
		if n, ok := l.name(child); ok && n.Sequence >= 0 {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, Name.Compare)
	return names
}

// find returns the index of the contender whose node has this name and number, or -1.
func find(line []Name, node string, sequence int32) int {
	i, _ := slices.BinarySearchFunc(line, Name{Sequence: sequence}, Name.Compare)
	for ; i < len(line) && line[i].Sequence == sequence; i++ {
		if line[i].Node == node {
			return i
		}
	}
	return -1
}
