package lock

import (
	"bytes"
	"context"
	"sync"
)

// revocation is what Apache Curator's Revoker writes, and its makeRevocable waits for.
var revocation = []byte("__REVOKE__")

// A revocable is the part of a lease that hears of revocations.
type revocable struct {
	dir string // where the lease's node is

	mu      sync.Mutex
	revoked chan struct{} // nil until Revoked is called
}

// Revoke asks the contender with this name in [Mutex.Contenders] to give the lock back. A holder
// hears of it if it has called [Lease.Revoked], and goes on holding the lock until it unlocks. A
// waiter hears of it once it is granted the lock. Nothing forces either of them: [Mutex.Break]
// does.
//
// Revoke replaces the data of the contender's node. It is Apache Curator's Revoker: a Curator lock
// that was made revocable hears of it, and a lease of ours hears of Curator's.
//
// Revoke blocks until the server has answered or ctx ends. It may be repeated. Its error wraps
// [zk.ErrNoNode] if there is no such node, [zk.ErrInvalidPath] if no contender could have that
// name, or [zk.ErrNoAuth] if others may not write the node. It is safe for concurrent use.
//
// [zk.ErrNoNode]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoNode
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (m *Mutex) Revoke(ctx context.Context, node string) error {
	return m.line.SetData(ctx, node, revocation)
}

// Revoke asks the holder to give the lock back, as [Mutex.Revoke] does.
func (s *Simple) Revoke(ctx context.Context, node string) error { return s.mutex.Revoke(ctx, node) }

// Revoked returns a channel that is closed when another client has asked for the lock, with
// [Mutex.Revoke] or Apache Curator's Revoker, before or after the call. The lease is held on until
// it is given back. The channel of a lease that has ended first stays as it is.
//
// The first call begins to wait in a goroutine of the lease's own, which ends with the lease's node
// and shares the watch on it. Revoked does not block, and is safe for concurrent use.
func (l *Lease) Revoked() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.revoked == nil {
		l.revoked = make(chan struct{})
		l.grant.Session().Go(l.awaitRevocation)
	}
	return l.revoked
}

// awaitRevocation waits under the life of the session, which outlasts the view's back-off: no
// caller would hear of its end.
func (l *Lease) awaitRevocation(ctx context.Context) {
	for {
		w := l.grant.Session().Watch(l.dir + "/" + l.Node())
		same, err := w.Current(ctx)
		switch {
		case err != nil:
			return // the node is gone, or may not be read
		case !same:
			continue
		case l.Err() != nil:
			return
		case bytes.Equal(w.Data(), revocation):
			close(l.revoked)
			return
		}
		if err := w.Wait(ctx); err != nil {
			return
		}
	}
}
