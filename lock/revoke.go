package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// ErrNotRevocable is returned by Revoke if the contender's node has data of its user's (an
// election's value, or the data of [WithData]). Revoke never replaces them.
var ErrNotRevocable = errors.New("the contender's data are its user's, and cannot carry a request")

// Revoke asks the contender with this name in [Mutex.Contenders] to give the lock back. The request
// reaches a holder that has called [Lease.Revoked], which goes on holding the lock until it
// unlocks. It reaches a waiter once the waiter is granted the lock. Neither is forced:
// [Mutex.Break] forces them.
//
// Revoke adds a member to the owner data of the contender's node (see [protocol.Process]). If the
// data have another form, they stay as they are and Revoke returns [ErrNotRevocable]. A node
// without data (or with only Curator's address) gets the data of Curator's Revoker. So requests
// work in both directions between Curator's revocable locks and ours. A lease that has received a
// request writes its own data back.
//
// Revoke blocks until the server has answered twice or ctx ends. It can be repeated. Its error
// wraps [zk.ErrNoNode] if there is no such node and [zk.ErrInvalidPath] if no contender could have
// that name. It wraps [zk.ErrNoAuth] if others may not read and write the node. It is safe for
// concurrent use.
//
// [zk.ErrNoNode]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoNode
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (m *Mutex) Revoke(ctx context.Context, node string) error {
	return m.line.UpdateData(ctx, node, func(data []byte) ([]byte, error) {
		_, _, ours := recipe.ParseOwner(node)
		request, ok := layout.Revoke(data, ours)
		if !ok {
			return nil, fmt.Errorf("%w: %.40q", ErrNotRevocable, data)
		}
		return request, nil
	})
}

// Revoked returns a channel that is closed when another client has asked for the lock (before or
// after the call) with [Mutex.Revoke] or Apache Curator's Revoker. The lease is held on until it is
// given back. The channel of a lease that has ended first stays as it is.
//
// The first call begins to wait in a goroutine of the lease's own, which ends with the lease and
// shares the watch on its node. Revoked does not block, and is safe for concurrent use.
func (l *Lease) Revoked() <-chan struct{} {
	l.listens.Do(func() {
		l.revoked = make(chan struct{})
		l.grant.Session().Go(l.awaitRevocation)
	})
	return l.revoked
}

// awaitRevocation waits under the life of the session, which outlasts the view's back-off. No
// caller would get its error, so it also goes on after a refusal until the lease ends. The node may
// outlast the lease: see [WithLinger].
func (l *Lease) awaitRevocation(ctx context.Context, s *recipe.Session) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer l.grant.AfterFunc(cancel)()

	const shortest, longest = 100 * time.Millisecond, time.Minute
	node := l.mutex.recipe.Path() + "/" + l.Node()
	for pause := shortest; ctx.Err() == nil; {
		w := s.Watch(node)
		same, err := w.Current(ctx)
		switch {
		case errors.Is(err, zk.ErrNoNode), l.Err() != nil:
			return
		case err != nil: // the node may not be read, now
			await(ctx, s, time.After(pause))
			pause = min(2*pause, longest)
		case same && layout.IsRevoked(w.Data()):
			close(l.revoked)
			// Data that the holder writes meanwhile stays because its version is different.
			if stat, err := w.Ready(ctx); err == nil && stat != nil {
				s.Set(ctx, node, s.NodeData(l.mutex.request.Data), stat.Version)
			}
			return
		case same:
			pause = shortest
			w.Wait(ctx)
		}
	}
}
