package session

import (
	"context"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
)

// A Bound is a session as one view uses it, for callers that wait or for a [Work].
type Bound struct {
	*Session
	View    *View
	Patient bool    // calls wait for a server as long as the session lasts
	Work    *Work   // whose attempts go on whatever becomes of the caller; or nil
	Retried Retried // nil without an observer
}

// A Retried tells the observer of a pause after a failed attempt.
type Retried func(ctx context.Context, session int64, pause time.Duration, err error)

// In returns b for w.
func (b *Bound) In(w *Work) Bound {
	inside := *b
	inside.Work = w
	return inside
}

// await blocks until requests may be made. It returns an error if ctx ends or the session is over
// first, or if no server was heard for too long in a call that began at that time. Then work goes
// on, and its caller gets the error.
func (b *Bound) await(ctx context.Context, began time.Time) error {
	for {
		if ctx.Err() != nil {
			return b.Conn.Why(ctx)
		}
		if err := b.Err(); err != nil {
			return err
		}

		gate, ready := b.Conn.Gate()
		if ready {
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
				b.Work.silent(err)
			}
		}
	}
}

// Silence returns a channel that receives when a call that began at that time has perhaps waited for
// too long. It is nil if nobody is to know that.
func (b *Bound) Silence(began time.Time) <-chan time.Time {
	if b.Patient || b.Work != nil && (b.Work.Caller == nil || b.Work.Unwanted() != nil) {
		return nil
	}
	return time.After(max(time.Until(b.silentFrom(began)), 1)) // see conn.Sleep
}

// Exists returns the Stat of the node at an absolute path, or nil if there is none.
func (b *Bound) Exists(ctx context.Context, node string) (*zk.Stat, error) {
	return Do(ctx, b, func(c *zk.Conn) (*zk.Stat, error) {
		there, stat, err := c.Exists(node)
		if err != nil || !there { // zk.Conn returns an empty Stat with most errors
			return nil, conn.Denied(err, "read", node)
		}
		return stat, nil
	})
}

// Children returns the names of the children of the node at an absolute path, and its Stat.
func (b *Bound) Children(ctx context.Context, node string) (names []string, stat *zk.Stat, err error) {
	type answer struct {
		names []string
		stat  *zk.Stat
	}
	a, err := Do(ctx, b, func(c *zk.Conn) (a answer, err error) {
		a.names, a.stat, err = c.Children(node)
		return a, conn.Denied(err, "list the children of", node)
	})
	return a.names, a.stat, err
}

// Sync makes the server catch up with the leader. It relies on its engagement: should the server not
// answer, then neither does it answer the keeper of the session's trust, who asks too, and cuts the
// connection.
func (b *Bound) Sync(ctx context.Context, node string) error {
	b.Engage()
	defer b.Disengage()

	_, err := Do(ctx, b, func(c *zk.Conn) (string, error) { return c.Sync(node) })
	return err
}

// Do makes a request until its outcome is definite, whoever waits for that. See [conn.Host].
func (b *Bound) Do(request func(*zk.Conn) error) error {
	_, err := Do(b.Life, b, func(c *zk.Conn) (struct{}, error) { return struct{}{}, request(c) })
	return err
}

// String returns the ID of the session, as servers write it.
func (s *Session) String() string { return fmt.Sprintf("session %#x", uint64(s.ID())) }
