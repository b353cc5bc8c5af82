package survey

import (
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A survey is one look at a path and everything below it.
type survey struct {
	*reader
	client     *protocol.Client
	places     int // the number of nodes that can still be listed
	contenders int // the number of contenders to read of each place
}

// A listing is a node whose children are known.
type listing struct {
	path     string
	children []string // sorted; without children that a recipe has claimed
	stat     *zk.Stat // nil if there is no such node
	hidden   bool     // an ACL forbids to list it
}

func (sv *survey) list(ctx context.Context, path string) (l listing, err error) {
	l.path = path
	l.children, l.stat, err = sv.reader.children(ctx, path)
	if errors.Is(err, zk.ErrNoAuth) {
		l.hidden, err = true, nil
	}

	if path == "/" { // the servers' own
		l.children = slices.DeleteFunc(l.children, func(child string) bool { return child == "zookeeper" })
	}
	return l, err
}

// claim removes the children that keep selects, and returns them.
func (l *listing) claim(keep func(child string) bool) (claimed []string) {
	var rest []string
	for _, child := range l.children {
		if keep(child) {
			claimed = append(claimed, child)
		} else {
			rest = append(rest, child)
		}
	}

	l.children = rest
	return claimed
}

func (l *listing) has(child string) bool { return slices.Contains(l.children, child) }

// claimNames claims the contenders of these kinds and returns them in order of arrival.
func (l *listing) claimNames(kinds ...string) []name {
	names := l.names(kinds...)
	l.claim(func(child string) bool { _, ok := parseName(child, kinds...); return ok })
	return names
}

// names returns the contenders of these kinds in order of arrival.
func (l *listing) names(kinds ...string) (names []name) {
	for _, child := range l.children {
		if n, ok := parseName(child, kinds...); ok {
			names = append(names, n)
		}
	}

	slices.SortStableFunc(names, name.compare)
	return names
}
