package doublebarrier

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A site is the path of a barrier, with the nodes below it.
type site struct{ recipe *recipe.Recipe }

func (at site) process() string           { return at.recipe.Path() + "/" + layout.DoubleProcess }
func (at site) member(name string) string { return at.process() + "/" + name }
func (at site) ready() string             { return at.recipe.Path() + "/" + layout.DoubleReady }

// A member is a node in line for a gate, or a node that a gate has counted.
type member = layout.Double

// line lists the members in order of arrival. There are none if process does not exist.
func (at site) line(ctx context.Context, s *recipe.Session) (line []member, err error) {
	children, _, err := s.Children(ctx, at.process())
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}

	for _, child := range children {
		if m, ok := layout.ParseDouble(child); ok {
			line = append(line, m)
		}
	}
	slices.SortFunc(line, func(x, y member) int { return cmp.Compare(x.Sequence, y.Sequence) })
	return line, err
}
