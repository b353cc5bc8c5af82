package conn

import (
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/trust"
)

// A Host is the session that a Conn connects. It decides whether the session goes on, and how
// urgent its connection is. All its methods are safe for concurrent use.
//
// The Conn calls Resume, Answered, Stake, Silent and Holds while it holds mutexes, so these methods
// must not block or call the Conn.
type Host interface {
	// Resume notes that a server has answered the handshake of a connection dialled at that time,
	// and which session timeout it granted. If hold is true, requests wait until a quorum has
	// agreed to a write of the Host's own, or until [Conn.Admit]. An error ends the connection.
	Resume(dialled time.Time, timeout time.Duration) (hold bool, err error)

	// Answered notes that a request was answered.
	Answered(sent, at time.Time, by trust.Witness)

	// Stake returns what the session can lose if no server is found in time. Silent reports whether
	// no server has answered for the whole timeout. Holds reports whether the Host's own requests
	// are frequent enough to need no pings.
	Stake() Stake
	Silent() bool
	Holds() bool

	// Err returns why the session has ended, or nil. (It reads the clocks, so a session can have
	// ended before any code noticed.) Gone ends the session for a reason that the servers gave.
	Err() error
	Gone(why error)

	// Changed is called when a connection comes or goes, or an attempt fails. Deleted is called
	// when a watched node is deleted. Neither blocks.
	Changed(Change)
	Deleted(path string)

	// Do repeats a request until its outcome is definite or the session ends.
	Do(request func(*zk.Conn) error) error

	Log(level slog.Level, message string, args ...any)
}

// A Change is a change of a session's connection.
type Change int

const (
	Connected    Change = iota // the session has a connection
	Disconnected               // it has no connection any more
	Failed                     // an attempt to connect has failed
)

// A Stake is the most a session can lose if it finds no server in time.
type Stake int

const (
	StakeNothing Stake = iota
	StakePlace         // its ephemeral nodes (a place in line), when the servers expire it
	StakeGrant         // its locks, when trust runs out
)
