package recipe

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// DeleteOnce deletes the node at path that the transaction czxid created. If a reply is lost,
// DeleteOnce looks for the node so that it never deletes a later node of that name. In the same
// transaction it deletes the nodes of with, first. If one of the nodes is gone, it returns
// [zk.ErrNoNode].
//
// It blocks until the server has answered, and returns the errors of [DoOnce]. If a reply is lost
// and the node can't be looked at, the error wraps [protocol.ErrUncertain] and the reason. In work
// of [Detach], DeleteOnce goes on after a refusal as [Session.Delete] does.
func (s *Session) DeleteOnce(ctx context.Context, path string, czxid int64, with ...string) error {
	remove := func(c *zk.Conn) (none struct{}, err error) {
		if len(with) == 0 {
			return none, Delete(c, s.Path(path), -1)
		}
		var ops []any
		for _, node := range append(slices.Clone(with), path) {
			ops = append(ops, &zk.DeleteRequest{Path: s.Path(node), Version: -1})
		}
		_, err = Multi(c, ops...)
		return none, err
	}
	removed := func(ctx context.Context) (none struct{}, done bool, err error) {
		now, err := s.Exists(ctx, path)
		if done = err == nil && (now == nil || now.Czxid != czxid); done {
			s.Gone(path)
		}
		return none, done, unknownIf(err)
	}

	// A deletion whose outcome is unknown must not be repeated.
	var unknown error
	refused := false
	err := s.bound.Insist(ctx, s.Path(path), func() (err error) {
		gone := false
		if refused { // since then, others can have deleted the node, and made the later one
			_, gone, err = removed(ctx)
		}
		if refused = true; err == nil && gone {
			return zk.ErrNoNode
		} else if err == nil {
			_, err = DoOnce(ctx, s, remove, removed)
		}
		if errors.Is(err, protocol.ErrUncertain) {
			unknown, err = err, nil
		}
		return err
	})
	return cmp.Or(err, unknown)
}
