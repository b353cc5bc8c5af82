package protocol

import (
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/session"
)

// A Session is one session with the ensemble over one [zk.Conn]. It is safe for concurrent use. It
// ends for good when
//
//   - the server says that it has expired
//   - it holds a lock and trust runs out (see "Trust" in the package documentation)
//   - the client is closed
type Session struct{ sessionDoor }

// ID returns the session ID that the server has given out.
func (s *Session) ID() int64 { return session.Open(s).ID() }

// Timeout returns the session timeout that the server has granted. It can change when the session
// moves to another server.
func (s *Session) Timeout() time.Duration { return session.Open(s).Timeout() }

// Deadline returns until when the session is safe if the ensemble does not answer any more. If the
// session holds a lock, it ends then. Otherwise the servers can expire it from then on. Answers
// move the deadline on.
func (s *Session) Deadline() time.Time { return session.Open(s).Deadline() }

// Conn returns the session's zk.Conn for reads and Multi calls of your own. Do not close it.
//
// Its paths are absolute: [Session.Path] puts the chroot in front. Its calls block until they are
// answered or the connection breaks, even after your ctx has ended. Without a connection they wait
// for the next connection. If there is none for a while, they return [zk.ErrSessionMoved] or
// [zk.ErrConnectionClosed]. Send less than a million bytes at once, because one size of a Multi
// just above a megabyte makes zk.Conn panic.
//
// Its watches survive any number of broken connections and end with the session. Each fires once
// (early or late). It can fire for a change that you have already read.
func (s *Session) Conn() *zk.Conn { return session.Open(s).Conn.ZK() }

// Path returns path with the chroot of the connect string in front.
func (s *Session) Path(path string) string { return session.Open(s).Path(path) }

// RequestLimit returns the size in bytes of the largest request that is sent: see
// [WithRequestLimit].
func (s *Session) RequestLimit() int { return session.Open(s).Limit }

// Done returns a channel that is closed when the session has ended. [Session.Err] says why (perhaps
// a moment earlier).
func (s *Session) Done() <-chan struct{} { return session.Open(s).Done() }

// Err returns nil while the session can be trusted. After that it returns an error that wraps
// [ErrLost] (and [ErrClosed] if the client was closed). It is computed from the clocks at each
// call, so it is right even in a process that was just stopped for a minute.
func (s *Session) Err() error { return session.Open(s).Err() }

// EphemeralBytes returns how many bytes the paths of the session's ephemeral nodes take (with the
// chroot and with four bytes for each node). From 1.5 million bytes on, calls return
// [ErrSessionFull] instead of creating another. Nodes that other clients have deleted count until
// the client finds that out. Nodes created through [Session.Conn] are not counted.
func (s *Session) EphemeralBytes() int { return session.Open(s).EphemeralBytes() }

// String returns the session ID as servers write it.
func (s *Session) String() string { return session.Open(s).String() }
