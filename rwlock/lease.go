package rwlock

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// ErrLocked is returned by TryLock and TryRLock when they would have to wait.
var ErrLocked = errors.New("locked")

// A Lease is a lock that is held, to read or to write, until it is given back with [Lease.Unlock] or lost. Its Done,
// Err, Context, Token and Check are those of [protocol.Grant]. It is safe for concurrent use.
type Lease struct {
	*protocol.Grant
	mutex     *RWMutex
	exclusive bool
}

// Exclusive tells whether the lease is, or was, one to write. It never changes.
func (l *Lease) Exclusive() bool { return l.exclusive }

// Unlock gives the lock back. It blocks until the lock's node is deleted, ctx ends or the session is over. The lease
// ends at once, and the node is deleted in any case: if ctx ends first, Unlock returns ctx's error and the client
// goes on in the background.
//
// Unlock returns an error that wraps [protocol.ErrLost] if the lease was lost before, or if the session ended before
// the deletion was confirmed; either way it is held no longer. It may be called again, and concurrently, and then
// waits for the same deletion. After [Lease.Downgrade] it does nothing and returns nil: the new lease has to be
// unlocked, too. During Downgrade it gives everything back.
func (l *Lease) Unlock(ctx context.Context) error { return protocol.Release(ctx, l.Grant) }

// Downgrade makes a read lease of a write lease. In the line the reader stands exactly where the writer stood: there
// is no moment at which another writer could hold the lock, readers that had waited for this writer are let in, and
// writers that wait go on waiting. From the moment of the call others may read, so call it when all is written.
//
// Downgrade blocks until the server has answered. The write lease is over then, as if given back, and what was derived
// from it with [protocol.Grant.Context], the ctx of [RWMutex.Do] included, is cancelled; that may be the very ctx of
// this call. The read lease that is returned has the same token, so that those of the writers who wait are greater. A
// read lease is returned as it is.
//
// If ctx has ended before the call, Downgrade returns its error and the write lease goes on. If ctx ends while it is
// at work, it returns ctx's error and the lock is given back altogether, in the background: a lease that may have been
// a read lease for some time cannot go on as a write lease. It returns an error that wraps [protocol.ErrLost] if the
// lease is lost before or meanwhile, with its session or because somebody has deleted its node, and one that wraps
// [protocol.ErrReleased] if it was given back or downgraded before or meanwhile. Other errors are the server's own, such
// as [zk.ErrNoAuth], and leave the write lease as it was; unless they are the last that a client whose back-off has an
// end makes of a broken connection, which is as if ctx had ended.
//
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (l *Lease) Downgrade(ctx context.Context) (*Lease, error) {
	if !l.exclusive {
		if err := l.Err(); err != nil {
			return nil, err
		}
		return l, nil
	}
	m := l.mutex
	g, err := m.line.Convert(ctx, l.Grant, m.read.Kind, m.read.Data)
	if err != nil {
		return nil, err
	}
	return &Lease{g, m, false}, nil
}

// A Contender is one node in line for a lock: a holder's, or that of somebody who waits.
type Contender struct {
	Node      string    // its name below the lock's path
	Session   int64     // its owner
	Token     int64     // its czxid: the fencing token that its owner has or will have, unless it was downgraded
	Data      []byte    // what WithData gave it
	Since     time.Time // its creation, by the server's clock
	Exclusive bool      // a writer
}
