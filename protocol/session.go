package protocol

import (
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/session"
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
// It is safe for concurrent use.
type Session struct{ sessionDoor }

// ID returns the session ID that the server has given out.
func (s *Session) ID() int64 { return session.Open(s).ID() }

// Timeout returns the session timeout that the server has granted. It may differ from the one that
// was asked for, and may change when the session moves to another server.
func (s *Session) Timeout() time.Duration { return session.Open(s).Timeout() }

// Deadline returns until when the session is safe if nothing more is heard from the ensemble. While
// something is held, it ends then, because trust runs out. Otherwise the servers may expire it from
// then on, and it ends when they say that they have. Answers move the deadline on.
func (s *Session) Deadline() time.Time { return session.Open(s).Deadline() }

// Conn returns the session's zk.Conn, for reads and Multi calls of your own. Do not close it.
//
// Its paths are absolute: use [Session.Path] to put the chroot in front. Its calls block until they
// are answered or the connection breaks, whatever your ctx says. While there is no connection, they
// wait for the session's next one. Keep what you send below a million bytes: one size of a Multi just
// above a megabyte makes zk.Conn panic.
//
// Watches set through it survive any number of broken connections, and end with the session. Each
// fires once for what has happened since it was set, early or late. It may also fire for a change
// that its owner knows already. As with every ZooKeeper client, a node that was created and deleted
// while there was no connection has never existed for a watch that waits for it.
func (s *Session) Conn() *zk.Conn { return session.Open(s).Conn.ZK() }

// Path returns path with the chroot of the connect string in front.
func (s *Session) Path(path string) string { return session.Open(s).Path(path) }

// RequestLimit returns the size in bytes of the largest request that is sent: see [WithRequestLimit].
func (s *Session) RequestLimit() int { return session.Open(s).Limit }

// Done returns a channel that is closed when the session is over. [Session.Err] then returns why.
// It may do so a moment earlier.
func (s *Session) Done() <-chan struct{} { return session.Open(s).Done() }

// Err returns nil while the session can be trusted. After that it returns an error that wraps
// [ErrLost], and also [ErrClosed] if the client was closed. It is computed from the clocks at the
// time of the call. So it is right in a process that has just been stopped for a minute, before
// anything else there has noticed.
func (s *Session) Err() error { return session.Open(s).Err() }

// EphemeralBytes returns how many bytes the paths of the session's ephemeral nodes take, with the
// chroot and with four bytes for each node. From 1,500,000 on, what would create another one returns
// [ErrSessionFull]. What was created through [Session.Conn] is not counted.
func (s *Session) EphemeralBytes() int { return session.Open(s).EphemeralBytes() }

// String returns the ID of the session, as servers write it.
func (s *Session) String() string { return session.Open(s).String() }
