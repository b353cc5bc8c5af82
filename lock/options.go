package lock

import (
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol/line"
)

// WithData stores data in the node of each contender. [Mutex.Contenders] shows it. By default the
// data is the [protocol.Process] or the data of [protocol.WithOwnerData]. Data and path together
// may have [protocol.MaxData] bytes; an acquisition with more returns [protocol.ErrTooLarge]. The
// caller must not change the slice afterwards.
func WithData(data []byte) Option {
	return func(m *Mutex) error {
		m.request.Data = data
		return nil
	}
}

// WithLocalQueue is for a lock that many goroutines of a process share. They wait for each other
// inside the process (first come first served) and have at most one node in line.
//
// After a goroutine has unlocked, the next goroutine goes to the end of the line. So other
// processes get the lock in between. Each process gets it equally often, however many goroutines it
// has. If there is no other process, the lock passes from goroutine to goroutine in one round trip
// each. While another goroutine of the queue is in line or holds the lock, TryLock returns
// [ErrLocked] without asking the server.
//
// The queue belongs to one Mutex or Simple, so share the value and not only its path.
func WithLocalQueue() Option {
	return func(m *Mutex) error {
		m.linger.queue = newLocalQueue()
		return nil
	}
}

// WithLinger is for a lock that one process takes again and again while others rarely want it.
// After [Lease.Unlock] the contender's node stays, and the next caller gets a [Lease] without a
// request. Callers of one Mutex wait for each other inside the process because this option includes
// [WithLocalQueue].
//
// The lock is given back
//
//   - at once if another contender comes while no lease is held,
//   - if a lease is held, by its Unlock. While callers of this Mutex wait, it is the first Unlock
//     later than min(d, 100 ms) after the contender came,
//   - when it was not used for d,
//   - after a [Mutex.Revoke], at once or by the Unlock,
//   - when the client is closed.
//
// After that, callers go to the end of the line. So another contender waits for one lease and some
// round trips (and perhaps for a tenth of a second before).
//
// Leases under one node have the same [Lease.Token], [Lease.Check] and [Lease.Node]. They fence
// processes from each other, but not the goroutines of a process: a request that a holder has sent
// and not awaited before its Unlock can arrive during the next lease. Unlock reports that the lease
// has ended, and nothing about the node. [Mutex.Break] ends the present lease. A caller that comes
// before the event arrives can get a lease that ends with it.
//
// A node is lent over one connection only, because another client can break it during a cut. After
// a reconnect the lock is given back, and callers go to the line.
//
// If a process dies or hangs within d of its last use, others wait for its session timeout though
// it holds nothing. So d should be a second rather than a minute, and a process that ends must
// close its client.
//
// A TryLock of this module that meets such a node enters the line, and waits for a quarter of a
// second. If servers lag by so much that the lock isn't given back in that time, TryLock returns
// [ErrLocked] though the lock is unused. Its contender has the lock given back all the same, so
// that the next TryLock finds it free. A try of another library (create, list and delete) fails.
// After two such tries the lock is left alone for a second, and the third try succeeds unless a
// lease is held. (A try that comes while a lease writes with [Lease.Multi] may not count.)
//
// The node belongs to one Mutex: share the value, not only its path. A [Simple] cannot linger.
func WithLinger(d time.Duration) Option {
	return func(m *Mutex) error {
		if d <= 0 {
			return fmt.Errorf("linger of %v is not positive", d)
		}
		m.linger.d, m.linger.queue = d, newLocalQueue()
		m.request.Kind = line.Lingering
		return nil
	}
}

// WithLingerLimit says how many nodes of a client may linger when this Mutex adds another node (see
// [WithLinger]). The nodes that were not used for longest go, those in use with their lease. The
// default is 1,000. Each view of a client (see [protocol.Client.With]) has its own count. Once half
// of a session's room is used (see [protocol.ErrSessionFull]), only the latest node lingers.
func WithLingerLimit(n int) Option {
	return func(m *Mutex) error {
		if n < 1 {
			return fmt.Errorf("%d nodes cannot linger", n)
		}
		m.linger.most = n
		return nil
	}
}
