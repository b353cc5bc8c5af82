package rwlock

import (
	"context"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// Downgrade turns a write lease into a read lease at exactly the same place in line, so no other
// writer can hold the lock in between. Readers that waited for this writer get the lock, and
// waiting writers go on waiting. Others can read from the moment of the call, so write everything
// first. A read lease is returned as it is.
//
// Downgrade blocks until the server has answered or ctx ends. The write lease then ends, as if
// given back. Every context derived from it with [Lease.Context] is cancelled, including the ctx of
// [RWMutex.Do], even if that is the ctx of this call. The returned read lease has the same token,
// and the tokens of the waiting writers are greater.
//
// If ctx has ended before the call, Downgrade returns its error and the write lease goes on. If ctx
// ends while Downgrade is at work, it returns ctx's error and the lock is given back altogether, in
// the background. (A lease that may have been a read lease for some time cannot go on as a write
// lease.)
//
// The error wraps [protocol.ErrLost] if the lease is lost by then, and [protocol.ErrReleased] if it
// was given back or downgraded. Other errors are the server's own, such as [zk.ErrNoAuth], and
// leave the write lease as it was. One exception: if the client's back-off stops on a broken
// connection, that has the effect of ctx's end.
//
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (l *Lease) Downgrade(ctx context.Context) (*Lease, error) {
	if !l.exclusive {
		if err := l.Err(); err != nil {
			return nil, err
		}
		return l, nil
	}

	g, err := l.replace(ctx)
	if err != nil {
		return nil, err
	}
	return &Lease{g, l.mutex, false}, nil
}

// replace puts a reader's node into the very place in line that the writer's node has. Both happen
// in one transaction, so others always see one of the two nodes. The sequence number stays. The
// reader's name is never used again, because a reader cannot become a writer.
func (l *Lease) replace(ctx context.Context) (*recipe.Grant, error) {
	g, s, r := l.grant, l.grant.Session(), l.mutex.recipe
	data := s.NodeData(l.mutex.read.Data)
	if err := r.Validate(data); err != nil {
		return nil, r.Wrap(err)
	}
	owner, _, _ := recipe.ParseOwner(g.Node())
	name, _ := line.ParseName(g.Node(), l.mutex.write.Kind)
	reader := fmt.Sprintf("%s-%s"+recipe.SequenceFormat, owner, l.mutex.read.Kind, name.Sequence)
	from, to := r.Path()+"/"+g.Node(), r.Path()+"/"+reader

	return g.Replace(ctx, l.mutex.read.Recipe, to, func(ctx context.Context, s *recipe.Session) error {
		uncertain := false
		_, err := recipe.DoOnce(ctx, s, func(c *zk.Conn) (struct{}, error) {
			if err := s.Abandoned(); err != nil {
				return struct{}{}, err
			}
			_, err := recipe.Multi(c,
				// Waiters for the writer's node see this change instead, and look again.
				&zk.SetDataRequest{Path: s.Path(from), Version: -1},
				&zk.CreateRequest{Path: s.Path(to), Data: data, Acl: s.ACL(to), Flags: zk.FlagEphemeral},
				&zk.DeleteRequest{Path: s.Path(from), Version: -1})
			uncertain = recipe.OutcomeUnknown(err)
			return struct{}{}, err
		}, func(ctx context.Context) (_ struct{}, done bool, err error) {
			there, err := s.Exists(ctx, to) // only this client creates it
			done = there != nil
			uncertain = uncertain && (done || err != nil)
			return struct{}{}, done, err
		})
		if err != nil && uncertain {
			err = fmt.Errorf("%w: %w", protocol.ErrUncertain, err)
		}
		return err
	})
}
