package laws

import (
	"context"
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A latch is a recipe that this test makes up: it is closed until a process opens it, for good. It
// has all laws by its two rows.
type latch struct {
	*recipe.Recipe
	open string
}

func newLatch(c *protocol.Client, path string) *latch {
	return &latch{recipe.New(c, "latch", path), path + "/open"}
}

// Open opens the latch. It may be open already.
func (l *latch) Open(ctx context.Context) error {
	_, err := recipe.AcrossSessions(ctx, l.Recipe, func(s *recipe.Session) (bool, error) {
		return s.EnsurePath(ctx, l.open)
	})
	return err
}

// IsOpen reports whether the latch is open.
func (l *latch) IsOpen(ctx context.Context) (bool, error) {
	return recipe.AcrossSessions(ctx, l.Recipe, func(s *recipe.Session) (bool, error) {
		_, _, err := s.Get(ctx, l.open)
		if errors.Is(err, zk.ErrNoNode) {
			return false, nil
		}
		return err == nil, err
	})
}

var latchRows = []Row{
	{"latch.Open", func(s *Stage) Verb {
		return Verb{
			Before: func() { s.operator().Delete(s.ctx, s.Path+"/open", -1) },
			Call:   call(newLatch(s.Client, s.Path).Open),
			Effect: func() int { return s.Count("^/open$") },
			Loose:  true,
		}
	}},
	{"latch.IsOpen", func(s *Stage) Verb {
		l := newLatch(s.Client, s.Path)
		return Verb{
			Before: func() { check(newLatch(s.Other(), s.Path).Open(s.ctx)) },
			Call:   call(func(ctx context.Context) error { _, err := l.IsOpen(ctx); return err }),
		}
	}},
}

// A new recipe has all laws by adding its rows to the table. This one has its rows beside the
// table, and so its outcomes are only checked for what breaks a law.
func TestNewRecipe(t *testing.T) {
	toy := Virtual().With(latchRows...)
	for name, law := range map[string]func(*testing.T, *Player){
		"refused": Refused, "cut": Cut, "cancelled": Cancelled, "silence": Silence, "killed": Killed, "second": Second,
		"lag": Lag, "strays": Strays, "views": Views, "rest": Rest,
	} {
		t.Run(name, func(t *testing.T) { law(t, toy) })
	}
}
