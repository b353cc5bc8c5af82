package session

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
)

// A Bound is a session as one view uses it, for callers that wait or for a [Work].
type Bound struct {
	*Session
	View    *View
	Patient bool    // calls wait for a server as long as the session lasts
	Work    *Work   // attempts go on even if its caller has left; nil for callers that wait
	Retried Retried // nil without an observer
}

// A Retried tells the observer about a pause after a failed attempt.
type Retried func(ctx context.Context, session int64, pause time.Duration, err error)

// In returns b for w.
func (b *Bound) In(w *Work) Bound {
	inside := *b
	inside.Work = w
	return inside
}

// await blocks until requests can be made. It returns an error if ctx or the session ends first, or
// if a call that began at that time has waited for a server for too long. In the last case, work
// goes on, and its caller gets the error.
func (b *Bound) await(ctx context.Context, began time.Time) error {
	for {
		if ctx.Err() != nil {
			return b.Conn.Why(ctx)
		}
		if err := b.Err(); err != nil {
			return err
		}

		gate := b.Conn.Gate()
		if conn.IsClosed(gate) {
			return nil
		}

		b.Awaited()

		select {
		case <-gate:
		case <-b.Done():
		case <-ctx.Done():
			return b.Conn.Why(ctx)
		case <-b.Silence(began):
			if err := b.Silent(began); err != nil {
				if b.Work == nil {
					return err
				}
				// Work goes on. Only its caller gets the error.
				b.Work.silent(err)
			}
		}
	}
}

// Silence returns a channel that receives when a call that began at that time has perhaps waited
// for too long. It is nil if the call waits on in any case.
func (b *Bound) Silence(began time.Time) <-chan time.Time {
	if b.Patient || b.Work != nil && (b.Work.Caller == nil || b.Work.Unwanted() != nil) {
		return nil
	}
	return time.After(max(time.Until(b.silentFrom(began)), 1)) // see conn.Sleep
}

// Exists returns the Stat of the node at an absolute path, or nil if there is no node.
func (b *Bound) Exists(ctx context.Context, node string) (*zk.Stat, error) {
	return Do(ctx, b, func(c *zk.Conn) (*zk.Stat, error) {
		there, stat, err := c.Exists(node)
		if err != nil || !there { // zk.Conn returns an empty Stat with most errors
			return nil, conn.Denied(err, "read", node)
		}
		return stat, nil
	})
}

// A reading is the answer to a read. The request can outlast the call, so it must not set the
// call's results itself.
type reading struct {
	data  []byte
	names []string
	stat  *zk.Stat
}

// Get returns the data and the Stat of the node at an absolute path.
func (b *Bound) Get(ctx context.Context, node string) (data []byte, stat *zk.Stat, err error) {
	r, err := Do(ctx, b, func(c *zk.Conn) (r reading, err error) {
		r.data, r.stat, err = c.Get(node)
		return r, conn.Denied(err, "read", node)
	})
	return r.data, r.stat, err
}

// Children returns the names of the children of the node at an absolute path, and its Stat.
func (b *Bound) Children(ctx context.Context, node string) (names []string, stat *zk.Stat, err error) {
	r, err := Do(ctx, b, func(c *zk.Conn) (r reading, err error) {
		r.names, r.stat, err = c.Children(node)
		return r, conn.Denied(err, "list the children of", node)
	})
	return r.names, r.stat, err
}

// Sync makes the server catch up with the leader. It needs no limit of its own: while it is
// engaged, keep sends requests too, and cuts the connection if the server doesn't answer them.
func (b *Bound) Sync(ctx context.Context, node string) error {
	b.Engage()
	defer b.Disengage()

	_, err := Do(ctx, b, func(c *zk.Conn) (string, error) { return c.Sync(node) })
	return err
}

// Do repeats a request until its outcome is definite or the session ends.
func (b *Bound) Do(request func(*zk.Conn) error) error {
	_, err := Do(b.Life, b, func(c *zk.Conn) (struct{}, error) { return struct{}{}, request(c) })
	return err
}
