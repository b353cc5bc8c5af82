package lock

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// ErrLocked is returned by TryLock when somebody else holds the lock, or stands in line for it.
var ErrLocked = errors.New("locked")

// A Lease is a lock that is held, until it is given back with [Lease.Unlock] or lost. Its Done, Err, Context, Token
// and Check are those of [protocol.Grant]. It is safe for concurrent use.
type Lease struct {
	*protocol.Grant
}

// Unlock gives the lock back. It blocks until the lock's node is deleted, ctx ends or the session is over. The lease
// ends at once, and the node is deleted in any case: if ctx ends first, Unlock returns ctx's error and the client
// goes on in the background.
//
// Unlock returns an error that wraps [protocol.ErrLost] if the lease was lost before, or if the session ended before
// the deletion was confirmed; either way it is held no longer. It may be called again, and concurrently, and then
// waits for the same deletion.
func (l *Lease) Unlock(ctx context.Context) error { return protocol.Release(ctx, l.Grant) }

// A Contender is one node in line for a lock: the holder's, or that of somebody who waits.
type Contender struct {
	Node    string    // its name below the lock's path
	Session int64     // its owner
	Token   int64     // its czxid: the fencing token that its owner has or will have
	Data    []byte    // what WithData gave it
	Since   time.Time // its creation, by the server's clock
}

// An Option shapes a lock; give it to [New] or [NewSimple].
type Option func(*Mutex)

// WithData stores data in the node of each contender, for [Mutex.Contenders] to show. With the path it may have
// [protocol.MaxData] bytes; an acquisition with more returns [protocol.ErrTooLarge]. The slice must not be changed
// afterwards.
func WithData(data []byte) Option { return func(m *Mutex) { m.bid.Data = data } }

// WithTurns is for a lock that many goroutines of a process share: they wait for each other in the process, first come,
// first served, and have one node in line at most. Once one of them has unlocked the next one goes to the end of the
// line. So other processes get the lock in between, and a process gets it as often as any other, however many
// goroutines it has; and if there is no other process, the lock goes from goroutine to goroutine with each round trip. TryLock
// returns [ErrLocked] without asking the server while another goroutine has its turn. All else is as without it.
//
// Turns are those of one Mutex or Simple: share that, and not only its path.
func WithTurns() Option { return func(m *Mutex) { m.bid.Turns = protocol.NewTurns() } }
