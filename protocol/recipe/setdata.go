package recipe

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// SetData replaces the data of g's node, exactly once. It blocks until the server has answered
// twice (four times if an answer was lost). Once g's node is gone it has no effect any more, and it
// never undoes a later SetData that has returned. It is safe for concurrent use: of several calls
// at the same time, one comes last.
//
// If g has ended before, SetData returns [Grant.Err]. Otherwise it returns [protocol.ErrTooLarge]
// or the server's own error. If it returns the error of ctx or of a back-off that has ended, the
// data was perhaps replaced. The same goes for [protocol.ErrUncertain], which it returns if an
// answer was lost and the ACL of g's node does not allow to read the node.
func (g *Grant) SetData(ctx context.Context, data []byte) error {
	if err := g.recipe.ValidateCall(ctx, data); err != nil {
		return err
	}

	err := g.setData(ctx, data)

	// A server that lags can say too early that the node is gone.
	for errors.Is(err, zk.ErrNoNode) {
		if gone, failed := g.missing(ctx); gone {
			return g.Err()
		} else if err = failed; err == nil {
			err = g.setData(ctx, data)
		}
	}

	return g.recipe.Wrap(err)
}

func (g *Grant) setData(ctx context.Context, data []byte) error {
	for {
		if ctx.Err() != nil {
			return conn.ContextError(ctx)
		}
		if err := g.Err(); err != nil {
			return err
		}

		stat, err := g.stat(ctx)
		if err != nil {
			return err
		}

		// An earlier write can still be under way although its caller has left. If it comes first,
		// this write finds another version and is tried again. Otherwise it fails itself.
		_, err = DoOnce(ctx, g.session.of(ctx), func(c *zk.Conn) (struct{}, error) {
			_, err := Set(c, g.node, data, stat.Version)
			return struct{}{}, err
		}, func(ctx context.Context) (_ struct{}, done bool, err error) {
			done, err = g.wasSet(ctx, data, stat.Version)
			return struct{}{}, done, err
		})
		if !errors.Is(err, zk.ErrBadVersion) {
			return err
		}
	}
}

// wasSet reports whether a write of this data to this version was executed. If another write came
// first, this write never will be and wasSet returns [zk.ErrBadVersion].
func (g *Grant) wasSet(ctx context.Context, data []byte, version int32) (bool, error) {
	now, stat, err := g.session.of(ctx).bound.Get(ctx, g.node)
	if err == nil && !g.owns(stat) {
		err = zk.ErrNoNode
	}

	switch {
	case errors.Is(err, zk.ErrNoAuth):
		return false, fmt.Errorf("%w: %w", protocol.ErrUncertain, err)
	case err != nil || stat.Version == version:
		return false, err
	case stat.Version == version+1 && !bytes.Equal(now, data):
		return false, zk.ErrBadVersion
	}

	// After more than one version, other writes can have come instead of this write. Then it counts
	// as executed just before the last of them, which came during the call: nothing shows the
	// difference.
	return true, nil
}
