package recipe

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/session"
)

// Get returns the data and the Stat of a node, or [zk.ErrNoNode].
func (s *Session) Get(ctx context.Context, path string) (data []byte, stat *zk.Stat, err error) {
	return s.bound.Get(ctx, s.Path(path))
}

// Exists returns the Stat of a node, or nil if there is no node. Since ZooKeeper 3.8.4 and 3.9.2 it
// returns [zk.ErrNoAuth] if the client can't read the node. Earlier versions require no permission.
func (s *Session) Exists(ctx context.Context, path string) (*zk.Stat, error) {
	return s.bound.Exists(ctx, s.Path(path))
}

// Children returns the names of a node's children (in no order) and the Stat of the node, or
// [zk.ErrNoNode].
func (s *Session) Children(ctx context.Context, path string) (names []string, stat *zk.Stat, err error) {
	return s.bound.Children(ctx, s.Path(path))
}

// Create creates a node that is not sequential ([Session.CreateOwn] is for sequential nodes). It
// also returns [zk.ErrNodeExists] if its own first attempt has created the node and the answer was
// lost. After a lost answer, an error also wraps [protocol.ErrUncertain]. Use a name of
// [Session.NewOwner] where that makes a difference.
func (s *Session) Create(ctx context.Context, path string, data []byte, flags int32) error {
	if flags&zk.FlagSequence != 0 {
		return fmt.Errorf("%w: sequential nodes are for CreateOwn", zk.ErrBadArguments)
	}
	_, err := session.Change(ctx, &s.bound, func(c *zk.Conn) (string, error) {
		return Create(c, s.Path(path), data, flags, s.bound.View.ACL(path))
	})
	return err
}

// Set replaces the data of a node if the node has this version (or any version if version is -1)
// and returns the new Stat. It also returns [zk.ErrBadVersion] if its own first attempt has
// replaced the data and the answer was lost. After a lost answer, an error also wraps
// [protocol.ErrUncertain]. With version -1, Set can replace the data twice after a lost answer:
// that undoes a write of another client in between and counts as two versions.
func (s *Session) Set(ctx context.Context, path string, data []byte, version int32) (*zk.Stat, error) {
	return session.Change(ctx, &s.bound, func(c *zk.Conn) (*zk.Stat, error) { return Set(c, s.Path(path), data, version) })
}

// Delete deletes a node if the node has this version (or any version if version is -1). It returns
// [zk.ErrNoNode] if another client has deleted the node. With another version than -1, an error
// after a lost answer also wraps [protocol.ErrUncertain] because the first attempt can have
// deleted the node.
//
// Version -1 is for nodes whose names are never used again, such as names of [Session.NewOwner]. In
// work of [Detach], Delete then goes on until the node is gone or the session ends. It goes on even
// if the server refuses to delete the node: others can remove the reason.
func (s *Session) Delete(ctx context.Context, path string, version int32) error {
	if version == -1 {
		return s.remove(ctx, s.Path(path))
	}
	_, err := session.Change(ctx, &s.bound, func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, Delete(c, s.Path(path), version)
	})
	return err
}

// Multi does all of the operations, or none. They are the operations of [zk.Conn] Multi, with paths
// without the chroot. A create without an ACL gets the view's ACL. If an operation fails, Multi
// returns its error. The answers have the errors of all operations.
//
// If the connection breaks, Multi repeats the transaction. So an attempt whose answer was lost can
// make the next attempt fail, and then the error also wraps [protocol.ErrUncertain]. Choose
// operations that make such a failure look different from others. ([Grant.Check] is for [DoOnce]
// and for the package's function Multi because its path is already absolute.)
func (s *Session) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return session.Change(ctx, &s.bound, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		return Multi(c, s.absolute(ops)...)
	})
}

// absolute returns copies of operations with the chroot in front of their paths.
func (s *Session) absolute(ops []any) []any {
	all := make([]any, len(ops), len(ops)+1)

	for i, op := range ops {
		switch op := op.(type) {
		case *zk.CreateRequest:
			create := *op
			create.Path = s.Path(op.Path)
			if len(create.Acl) == 0 {
				create.Acl = s.bound.View.ACL(op.Path)
			}

			all[i] = &create
		case *zk.SetDataRequest:
			all[i] = &zk.SetDataRequest{Path: s.Path(op.Path), Data: op.Data, Version: op.Version}
		case *zk.DeleteRequest:
			all[i] = &zk.DeleteRequest{Path: s.Path(op.Path), Version: op.Version}
		case *zk.CheckVersionRequest:
			all[i] = &zk.CheckVersionRequest{Path: s.Path(op.Path), Version: op.Version}
		default:
			all[i] = op // zk.Conn refuses it
		}
	}

	return all
}

// Sync makes the server of s catch up with the leader. Reads after it see everything that happened
// before it began. The exception is a deposed leader that doesn't know it yet: it answers without a
// quorum, so reads there miss the writes of its successor. That lasts a few seconds at most
// (syncLimit ticks). Only a write finds out: no quorum agrees to it there.
func (s *Session) Sync(ctx context.Context, path string) error {
	return s.bound.Sync(ctx, s.Path(path))
}

// Fence blocks until a quorum of the ensemble has voted on a write of s that changes nothing and
// needs no permission. After that, every earlier request of s has been executed or never will be,
// over whichever connection and member it went. Reads after it see the requests that were executed.
//
// So to settle an unknown outcome, fence and then look ([DoOnce] does so by itself). A
// [Session.Sync] is not enough. A leader can answer it before it commits its own proposals (if
// zookeeper.forward_learner_requests_to_commit_processor_disabled is set), and a deposed leader
// answers it without asking other members.
//
// A fence costs the ensemble a transaction, so it is for rare cases. If the connection breaks or a
// member answers by itself, Fence tries again. Its errors are the errors of [Do].
func (s *Session) Fence(ctx context.Context) error { return s.bound.Fence(ctx) }

// Confirm makes a quorum of the ensemble confirm s unless a quorum did so lately. It reports
// whether it had to ask. If it had to ask, earlier reads can be out of date. A session must be
// confirmed before it is granted something that a contender has waited for.
func (s *Session) Confirm(ctx context.Context) (asked bool, err error) { return s.bound.Confirm(ctx) }

// DeleteWith deletes a node whose name is never used again with op (a transaction that does more).
// If the node is gone, it returns [zk.ErrNoNode]. If the server refuses op for another reason,
// DeleteWith deletes only the node (as [Session.Delete] does). So the caller never gets a refusal
// of op's other operations even if the session is lost meanwhile.
func (s *Session) DeleteWith(ctx context.Context, path string, op func(*zk.Conn) error) error {
	// The other operations of op can be refused for reasons of their own.
	err := s.tryDelete(ctx, op)
	if err == nil || errors.Is(err, zk.ErrNoNode) || conn.OutcomeOf(err) != conn.Definite {
		return err
	}
	return s.remove(ctx, s.Path(path))
}

// remove deletes a node whose name is never used again. It returns [zk.ErrNoNode] if another client
// has deleted the node.
func (s *Session) remove(ctx context.Context, node string) error {
	return s.bound.Insist(ctx, node, func() error {
		return s.tryDelete(ctx, func(c *zk.Conn) error { return Delete(c, node, -1) })
	})
}

// tryDelete repeats op until its outcome is definite. op deletes a node.
func (s *Session) tryDelete(ctx context.Context, op func(*zk.Conn) error) error {
	defer s.KeepAlive()()
	repeated := false
	_, err := Do(ctx, s, func(c *zk.Conn) (struct{}, error) {
		err := op(c)
		if repeated && errors.Is(err, zk.ErrNoNode) {
			err = nil // the attempt before has deleted it
		}

		repeated = repeated || conn.OutcomeOf(err) == conn.Unknown
		return struct{}{}, err
	})

	return err
}

// Gone notes that another client has deleted the ephemeral node of s at path. Without an event for
// a watch of s, the node takes room in s until there is none left: see
// [protocol.Session.EphemeralBytes]. Gone does no I/O.
func (s *Session) Gone(path string) { s.bound.Gone(s.Path(path)) }

// KeepAlive makes s look after its connection until stop is called, as it does while it holds a
// lock: it leaves a server that doesn't answer after a sixth of the timeout instead of two thirds.
func (s *Session) KeepAlive() (stop func()) {
	s.bound.Engage()
	return s.bound.Disengage
}

// Resumption returns a channel that is closed when s gets its next connection. Until then, s can
// miss events of watches.
func (s *Session) Resumption() <-chan struct{} { return s.bound.Conn.Resumption() }

// NewOwner returns an owner that differs from all other contenders, to put into the name of a node.
// Its String has the session in it, and [ParseOwner] reads it.
func (s *Session) NewOwner() Owner { return Owner(s.bound.NewOwner()) }

// Go runs work in a goroutine that [protocol.Client.Close] waits for. Its context lasts as long as
// s does. After Close, Go does nothing and returns false.
func (s *Session) Go(work func(ctx context.Context, s *Session)) (started bool) {
	return s.bound.Spawn(func() { work(s.bound.Nobody, s.Background()) })
}
