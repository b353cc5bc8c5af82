package doublebarrier

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// create creates process and its missing parents. It returns an error if members of Curator's
// barrier are at the path: Curator takes our nodes there for members of its own.
//
// It writes our number to a new record without a listing. Members that expect another number list
// the line when they read it: see agree.
func (b *Barrier) create(ctx context.Context, s *recipe.Session) error {
	created, err := b.createProcess(ctx, s)
	if err != nil {
		return err
	}

	children, _, err := s.Children(ctx, b.recipe.Path())
	if i := slices.IndexFunc(children, layout.CuratorMember.MatchString); i >= 0 {
		return fmt.Errorf("%w: %s is a member of Curator's double barrier, which cannot share the path",
			zk.ErrNodeExists, children[i])
	}

	if err == nil && created && !slices.Contains(children, layout.DoubleReady) {
		r := layout.DoubleRecord{Size: b.n}
		_, err = s.Set(ctx, b.process(), r.Data(), 0)
	}
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion) {
		err = nil // another client was faster
	}
	return err
}

// createProcess creates process and its missing parents. Process is a container, or a persistent
// node if the rounds are kept. It reports whether it has created process.
func (b *Barrier) createProcess(ctx context.Context, s *recipe.Session) (created bool, err error) {
	if !b.keeps {
		return s.EnsurePath(ctx, b.process())
	}

	if _, err = s.EnsurePath(ctx, b.recipe.Path()); err == nil {
		err = s.Create(ctx, b.process(), nil, 0)
	}
	if errors.Is(err, zk.ErrNodeExists) || errors.Is(err, zk.ErrNoNode) { // join tries again
		return false, nil
	}
	return err == nil, err
}
