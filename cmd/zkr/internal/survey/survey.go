package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// Limits limits how much a survey reads. A zero field means its default.
type Limits struct {
	Places     int // nodes that are listed (default 10,000)
	Contenders int // contenders read of each line, and elements of each queue (default 1,000)
}

// Look surveys path and everything below it. It says which nodes the ACLs hide.
//
// Look blocks until the server has answered a Sync, a listing for each node that has children and a
// read for each contender. If its session is lost, it starts again in the next session. Its error
// wraps ctx's error, [protocol.ErrClosed] or [zk.ErrInvalidPath], or is the server's own. It is
// safe for concurrent use.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
func Look(ctx context.Context, c *protocol.Client, path string, limits Limits) (*Place, error) {
	return across(ctx, c, path, func(s *recipe.Session) (*Place, error) {
		if err := s.Sync(ctx, path); err != nil {
			return nil, err
		}
		return look(ctx, c, s, path, limits, nil)
	})
}

// across calls look in one session after another until a session lasts for the whole look.
func across(
	ctx context.Context, c *protocol.Client, path string, look func(*recipe.Session) (*Place, error),
) (*Place, error) {
	if err := recipe.ValidatePath(path); err != nil {
		return nil, err
	}
	for {
		s, err := recipe.SessionOf(ctx, c)
		var p *Place
		if err == nil {
			p, err = look(s)
			if errors.Is(err, protocol.ErrLost) && !errors.Is(err, protocol.ErrClosed) {
				continue // SessionOf waits for the next session
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return p, nil
	}
}

// look is Look in one session. m is the memory of that session, or nil.
func look(ctx context.Context, c *protocol.Client, s *recipe.Session, path string, limits Limits, m *memory) (*Place, error) {
	sv := &survey{
		reader:     &reader{s, m, make(chan struct{}, readers)},
		client:     c,
		places:     cmp.Or(limits.Places, 10_000),
		contenders: cmp.Or(limits.Contenders, 1_000),
	}

	return sv.tree(ctx, path)
}
