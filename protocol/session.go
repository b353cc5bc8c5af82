package protocol

import (
	"context"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// A Session is one session with the ensemble, over one [zk.Conn] that ends with it. An operation
// that was begun in a session never runs in another one.
//
// A session ends for good
//
//   - when the server says that it has expired,
//   - when something is held and trust has run out (see "Trust" in the package documentation),
//   - when the client is closed.
//
// A Session is bound to the [Client] that returned it: it uses that client's ACL, back-off, logger
// and observer. Clients that were made by [Client.With] have Sessions with the same ID. A Session
// is safe for concurrent use.
//
// Get, Children, Exists, Create, Set, Delete, Multi and Sync block until the server has answered.
// If the connection breaks they try again, paced by the back-off. They take paths without the
// chroot. They return the server's own error, such as [zk.ErrNoAuth], ctx's if that ends first, one
// that wraps [ErrLost] or [ErrClosed] if the session ends, or [ErrTooLarge]. If no server can be
// reached for the session timeout, they return an error that wraps [zk.ErrNoServer]. The session may
// be alive all the same. A Session of [Recipe.Session] or [AcrossSessions] waits until ctx ends
// instead. [Do] and [DoOnce] are for other requests.
type Session struct {
	*session
	client  *Client
	recipe  *Recipe  // which the events of retries name, or nil
	patient bool     // calls wait for a server as long as the session lasts
	work    *work    // that s is for, whose attempts go on whatever becomes of the caller; or nil
	outer   *Session // the one for callers that wait, if this is for work
}

type session = kernel[*Grant]

// ID returns the session ID that the server has given out.
func (s *Session) ID() int64 { return s.session.ID() }

// Timeout returns the session timeout that the server has granted. It may differ from the one that
// was asked for, and may change when the session moves to another server.
func (s *Session) Timeout() time.Duration { return s.session.Timeout() }

// Deadline returns until when the session is safe if nothing more is heard from the ensemble. While
// something is held, it ends then, because trust runs out. Otherwise the servers may expire it from
// then on, and it ends when they say that they have. Answers move the deadline on.
func (s *Session) Deadline() time.Time { return s.session.Deadline() }

// Conn returns the session's zk.Conn, for reads and Multi calls of your own. Do not close it.
//
// Its paths are absolute: use [Session.Path] to put the chroot in front. Its calls block until they
// are answered or the connection breaks, whatever your ctx says. While there is no connection, they
// wait for the session's next one. [Do] returns when ctx ends. Keep what you send below [MaxData]:
// one size of a Multi just above a megabyte makes zk.Conn panic.
//
// Watches set through it survive any number of broken connections, and end with the session. Each
// fires once for what has happened since it was set, early or late. It may also fire for a change
// that its owner knows already. As with every ZooKeeper client, a node that was created and deleted
// while there was no connection has never existed for a watch that waits for it.
func (s *Session) Conn() *zk.Conn { return s.session.Conn() }

// Path returns path with the chroot of the connect string in front.
func (s *Session) Path(path string) string { return s.session.Path(path) }

// RequestLimit returns the size in bytes of the largest request that is sent: see [WithRequestLimit]
// and [MultiSize].
func (s *Session) RequestLimit() int { return s.ensemble.Limit }

// Done returns a channel that is closed when the session is over. [Session.Err] then returns why.
// It may do so a moment earlier.
func (s *Session) Done() <-chan struct{} { return s.session.Done() }

// Err returns nil while the session can be trusted. After that it returns an error that wraps
// [ErrLost], and also [ErrClosed] if the client was closed. It is computed from the clocks at the
// time of the call. So it is right in a process that has just been stopped for a minute, before
// anything else there has noticed.
func (s *Session) Err() error { return s.session.Err() }

// EphemeralBytes returns how many bytes the paths of the session's ephemeral nodes take, with the
// chroot and with four bytes for each node. From 1,500,000 on, what would create another one returns
// [ErrSessionFull]. What was created through [Session.Conn] is not counted.
func (s *Session) EphemeralBytes() int { return s.session.EphemeralBytes() }

// await blocks until requests may be made. It returns an error if ctx ends or the session is over
// first, or if no server was heard for too long in a call that began at that time. Then work goes
// on, and its caller gets the error.
func (s *Session) await(ctx context.Context, began time.Time) error {
	for {
		if ctx.Err() != nil {
			return s.conn.Why(ctx)
		}
		if err := s.Err(); err != nil {
			return err
		}

		gate, ready := s.conn.Gate()
		if ready {
			return nil
		}
		s.client.ensemble.Awaited()
		select {
		case <-gate:
		case <-s.Done():
		case <-ctx.Done():
			return s.conn.Why(ctx)
		case <-s.silence(began):
			if err := s.silent(began); err != nil {
				if s.work == nil {
					return err
				}
				s.work.silent(err)
			}
		}
	}
}

// silence returns a channel that receives when a call that began at that time has perhaps waited for
// too long. It is nil if nobody is to know that.
func (s *Session) silence(began time.Time) <-chan time.Time {
	if s.plain().patient || s.work != nil && (s.work.caller == nil || s.work.unwanted() != nil) {
		return nil
	}
	return time.After(max(time.Until(s.silentFrom(began)), 1)) // see conn.Sleep
}

// String returns the ID of the session, as servers write it.
func (s *Session) String() string { return fmt.Sprintf("session %#x", uint64(s.ID())) }

// ACL returns what a node gets that is created through s: the ACL of the view for this path, which
// has no chroot. The name of a sequential node ends before its number.
func (s *Session) ACL(path string) []zk.ACL { return s.client.acl(path) }

// NodeData returns the data for a contender's node: given, or the view's owner data if given is
// nil. It is for recipes whose nodes are not created by package line.
func (s *Session) NodeData(given []byte) []byte {
	if given == nil {
		return s.client.ownerData
	}
	return given
}

// in returns s for w.
func (s *Session) in(w *work) *Session {
	return &Session{session: s.session, client: s.client, recipe: s.recipe, work: w, outer: s.plain()}
}

// Background returns s for work that nobody waits for, and that lasts as long as s.
func (s *Session) Background() *Session { return s.in(&nobody) }

// plain returns s for callers that wait.
func (s *Session) plain() *Session {
	if s.outer == nil {
		return s
	}
	return s.outer
}

// detached returns a context for w, with the values of another one.
func (s *Session) detached(values context.Context, w *work) context.Context {
	return detachedContext{s.life, values, w}
}
