package line

import (
	"cmp"
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A Name is the name of a contender's node, taken apart.
//
// Our own are <session, 16 hex digits>-<nonce, 8 hex digits>-<kind><sequence>. Nodes of other
// libraries have a kind and a sequence number only.
type Name struct {
	Node     string       // the whole name
	Kind     string       // as it is spelt, with its separators: "lock-", "__lock__"
	Sequence int32        // negative after the counter's end
	Owner    recipe.Owner // zero for nodes of other libraries

	other bool // it is of none of the line's kinds
}

// ParseName takes the name of a node apart if it ends in one of the kinds and a sequence number,
// and reports whether it does. Anything may stand before the kind: other libraries put identifiers
// of their own there. Of several kinds that fit the longest counts. ParseName is safe for
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

// parse returns the contenders among the children of a line, first come first. Numbers after the
// counter's end are not among them: they come after all of ours, which end long before, and with
// them there would be no order.
func (l *Line) parse(children []string) []Name {
	names := make([]Name, 0, len(children))
	for _, child := range children {
		if n, ok := l.name(child); ok && n.Sequence >= 0 {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, Name.Compare)
	return names
}

// find returns the index of the contender in line whose node has this name and number, or -1.
func find(line []Name, node string, sequence int32) int {
	i, _ := slices.BinarySearchFunc(line, Name{Sequence: sequence}, Name.Compare)
	for ; i < len(line) && line[i].Sequence == sequence; i++ {
		if line[i].Node == node {
			return i
		}
	}
	return -1
}

// Among returns the contenders among the children of the line's node, first come first, those of
// other kinds included.
func (l *Line) Among(children []string) []Name { return l.parse(children) }
