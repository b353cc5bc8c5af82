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
	node := s.Path(path)
	type answer struct {
		data []byte
		stat *zk.Stat
	}
	a, err := Do(ctx, s, func(c *zk.Conn) (a answer, err error) {
		a.data, a.stat, err = c.Get(node)
		return a, conn.Denied(err, "read", node)
	})
	return a.data, a.stat, err
}

// Exists returns the Stat of a node, or nil if there is none. Since ZooKeeper 3.8.4 and 3.9.2 it
// returns [zk.ErrNoAuth] if there is a node that the client may not read. Earlier versions require
// no permission.
func (s *Session) Exists(ctx context.Context, path string) (*zk.Stat, error) {
	return s.bound.Exists(ctx, s.Path(path))
}

// Children returns the names of a node's children, in no order, and the Stat of the node, or
// [zk.ErrNoNode].
func (s *Session) Children(ctx context.Context, path string) (names []string, stat *zk.Stat, err error) {
	return s.bound.Children(ctx, s.Path(path))
}

// Create creates a node that is not sequential; [Session.CreateOwn] is for those that are. It
// returns [zk.ErrNodeExists] also if its own first attempt has created the node and the answer was
// lost. An error after a lost answer also wraps [protocol.ErrUncertain]. Use a name of
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

// Set replaces the data of a node if it has this version, or any if version is -1, and returns the
// new Stat. It returns [zk.ErrBadVersion] also if its own first attempt has replaced them and the
// answer was lost. An error after a lost answer also wraps [protocol.ErrUncertain]. With version -1
// the data is then replaced twice: that undoes what another client has written in between, and
// counts as two versions.
func (s *Session) Set(ctx context.Context, path string, data []byte, version int32) (*zk.Stat, error) {
	return session.Change(ctx, &s.bound, func(c *zk.Conn) (*zk.Stat, error) { return Set(c, s.Path(path), data, version) })
}

// Delete deletes a node if it has this version, or any if version is -1. It returns [zk.ErrNoNode]
// if another client had deleted it. With another version than -1, an error after a lost answer also
// wraps [protocol.ErrUncertain]: the node may be gone because of an attempt before.
//
// Version -1 is for nodes whose names are never used again, such as those of [Session.NewOwner]. In
// work of [Detach], Delete then goes on until the node is gone or the session is over, also if the
// server refuses to delete it: others may mend the reason.
func (s *Session) Delete(ctx context.Context, path string, version int32) error {
	if version == -1 {
		return s.remove(ctx, s.Path(path))
	}
	_, err := session.Change(ctx, &s.bound, func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, Delete(c, s.Path(path), version)
	})
	return err
}

// Multi does all of the operations, which are those of [zk.Conn] Multi, or none. Their paths have
// no chroot. A create without an ACL gets the view's. Multi repeats the transaction if the
// connection breaks, so an attempt whose answer was lost may make the next one fail. The error then
// also wraps [protocol.ErrUncertain]. The operations should be such that this can be told from
// other failures. [Grant.Check] is for [DoOnce] and the package's own Multi, as its path is
// absolute already.
//
// If an operation fails, Multi returns its error, and the errors of all in the answers.
func (s *Session) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return session.Change(ctx, &s.bound, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		absolute := make([]any, len(ops))
		for i, op := range ops {
			absolute[i] = s.absolute(op)
		}
		return Multi(c, absolute...)
	})
}

// absolute returns a copy of op with the chroot in front of its path.
func (s *Session) absolute(op any) any {
	switch op := op.(type) {
	case *zk.CreateRequest:
		create := *op
		create.Path = s.Path(op.Path)
		if len(create.Acl) == 0 {
			create.Acl = s.bound.View.ACL(op.Path)
		}
		return &create
	case *zk.SetDataRequest:
		set := *op
		set.Path = s.Path(op.Path)
		return &set
	case *zk.DeleteRequest:
		return &zk.DeleteRequest{Path: s.Path(op.Path), Version: op.Version}
	case *zk.CheckVersionRequest:
		return &zk.CheckVersionRequest{Path: s.Path(op.Path), Version: op.Version}
	}
	return op // zk.Conn refuses it
}

// Sync makes the server that s is connected to catch up with the leader. Reads after it see all
// that had happened before it began. The exception is a leader that was deposed and does not know
// it yet: it answers without asking a quorum, and what its successor has done is not seen. That
// lasts a few seconds, syncLimit ticks at most. Only a write finds out: no quorum agrees to it
// there.
func (s *Session) Sync(ctx context.Context, path string) error {
	return s.bound.Sync(ctx, s.Path(path))
}

// Fence blocks until a quorum of the ensemble has voted on a write that s makes, which changes
// nothing and needs no permission. Every request that s has sent before was then executed, or never
// will be, over whatever connection and member it went; and reads after it see what was executed.
//
// That is how an outcome that is unknown is settled: fence, then look. [DoOnce] does so by itself. A
// [Session.Sync] will not do. A leader may answer one before it commits what it has proposed, and
// does so where zookeeper.forward_learner_requests_to_commit_processor_disabled is set; a leader that
// was deposed answers one without asking anybody.
//
// A fence costs the ensemble a transaction, so it is for what rarely happens. If the connection
// breaks, or a member answers by itself, Fence sends another one. Its errors are those of [Do].
func (s *Session) Fence(ctx context.Context) error { return s.bound.Fence(ctx) }

// Confirm makes a quorum of the ensemble confirm s, unless that was done lately, and reports
// whether it had to ask. What was read before it asked may be out of date. Before something is
// granted that a contender has waited for, s has to be confirmed.
func (s *Session) Confirm(ctx context.Context) (asked bool, err error) { return s.bound.Confirm(ctx) }

// DeleteWith deletes a node whose name is never used again with op, a transaction that does more,
// and returns [zk.ErrNoNode] if the node is gone. If the server refuses op for another reason, the
// node alone is deleted, as [Session.Delete] does. So a reason of op's own does not get to the
// caller, not even if the session is lost meanwhile.
func (s *Session) DeleteWith(ctx context.Context, path string, op func(*zk.Conn) error) error {
	s.bound.Engage()
	defer s.bound.Disengage()

	_, err := Do(ctx, s, deletion(op))
	if err == nil || errors.Is(err, zk.ErrNoNode) || conn.OutcomeOf(err) != conn.Definite {
		return err
	}
	return s.remove(ctx, s.Path(path))
}

// remove deletes a node whose name is never used again. It returns [zk.ErrNoNode] if another client
// had deleted it.
func (s *Session) remove(ctx context.Context, node string) error {
	once := deletion(func(c *zk.Conn) error { return Delete(c, node, -1) })
	return s.bound.Insist(ctx, node, func() error {
		s.bound.Engage()
		defer s.bound.Disengage()

		_, err := Do(ctx, s, once)
		return err
	})
}

// deletion makes op, which deletes a node, fit to be repeated by [Do].
func deletion(op func(*zk.Conn) error) func(*zk.Conn) (struct{}, error) {
	repeated := false
	return func(c *zk.Conn) (struct{}, error) {
		err := op(c)
		if repeated && errors.Is(err, zk.ErrNoNode) {
			err = nil // it was the attempt before
		}
		repeated = repeated || conn.OutcomeOf(err) == conn.Unknown
		return struct{}{}, err
	}
}

// KeepAlive makes s look after its connection until stop is called, as it does while something is
// held: it leaves a server that does not answer after a sixth of the timeout instead of two thirds.
func (s *Session) KeepAlive() (stop func()) {
	s.bound.Engage()
	return s.bound.Disengage
}

// Resumption returns a channel that is closed when s gets its next connection. From now until then,
// events of watches may be missed.
func (s *Session) Resumption() <-chan struct{} { return s.bound.Conn.Resumption() }

// NewOwner returns an owner that no other contender is or will be, to put into the name of a node:
// its String has the session in it, and [ParseOwner] reads it.
func (s *Session) NewOwner() Owner { return Owner(s.bound.NewOwner()) }

// Go runs work in a goroutine that [protocol.Client.Close] waits for. Its context lasts as long as
// s does. After Close, Go does nothing and returns false.
func (s *Session) Go(work func(ctx context.Context, s *Session)) (started bool) {
	return s.bound.Spawn(func() { work(s.detached(context.Background(), &session.Nobody), s.Background()) })
}
