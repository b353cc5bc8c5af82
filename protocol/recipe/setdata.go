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
// twice, or four times if an answer was lost. Once g's node is gone it has no effect any more, and
// it never undoes a later SetData that has returned. It is safe for concurrent use; one of several
// at the same time is the last.
//
// SetData returns g's own error if g is over before, [protocol.ErrTooLarge], or the server's own.
// If it returns ctx's error, or that of a back-off that has ended, the data may have been replaced
// or not. The same goes for [protocol.ErrUncertain], where an answer was lost and the ACL of g's
// node does not allow to read it.
func (g *Grant) SetData(ctx context.Context, data []byte) error {
	if err := g.recipe.ValidateCall(ctx, data); err != nil {
		return err
	}

	err := g.setData(ctx, data)
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

		// A write to the version that was read fails, and is tried anew, if an earlier one comes in
		// between that was on its way still when its caller had given up. Once it has succeeded,
		// that other one fails.
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

// wasSet reports whether a write of this data to this version was executed. It returns
// [zk.ErrBadVersion] if it never will be, because another came first.
func (g *Grant) wasSet(ctx context.Context, data []byte, version int32) (bool, error) {
	type reading struct {
		data []byte
		stat *zk.Stat
	}
	now, err := Do(ctx, g.session.of(ctx), func(c *zk.Conn) (r reading, err error) {
		r.data, r.stat, err = c.Get(g.node)
		return r, err
	})

	if err == nil && !g.owns(now.stat) {
		err = zk.ErrNoNode
	}
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		return false, fmt.Errorf("%w: %w", protocol.ErrUncertain, err)
	case err != nil || now.stat.Version == version:
		return false, err
	case now.stat.Version == version+1 && !bytes.Equal(now.data, data):
		return false, zk.ErrBadVersion
	}
	// With more than one version in between it may have been another's, and ours not executed. Then
	// ours counts as executed just before the last of those, which came while our call lasted:
	// nothing tells the two apart.
	return true, nil
}
