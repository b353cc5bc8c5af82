package conn

import (
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/trust"
)

// A Host is the session that a Conn connects. It decides whether the session goes on, and how urgent
// its connection is. All of its methods are safe for concurrent use.
//
// Resume, Answered, Stake, Silent and Holds are called while mutexes of the Conn are held. So
// they neither block nor call the Conn.
type Host interface {
	// Resume notes that a server has answered the handshake of a connection which was dialled at that
	// time, and has granted a session timeout. If hold is true, requests wait until a quorum has
	// agreed to one of the Host's own, or until [Conn.Admit]. An error ends the connection.
	Resume(dialled time.Time, timeout time.Duration) (hold bool, err error)

	// Answered notes that a request was answered.
	Answered(sent, at time.Time, by trust.Witness)

	// Stake returns what the session loses if no server is found in time, Silent whether no server was
	// heard for the whole timeout, and Holds whether the Host makes requests often enough to need no
	// pings.
	Stake() Stake
	Silent() bool
	Holds() bool

	// Err returns why the session is over, or nil. By the clocks it may be over though nothing has
	// noticed so far. Gone ends it, with a reason that the servers have given.
	Err() error
	Gone(why error)

	// Changed tells of a connection that has come or gone, or of an attempt that has failed.
	// Deleted tells of a watched node that was deleted. Neither blocks.
	Changed(Change)
	Deleted(path string)

	// Do makes a request until its outcome is definite, or the session is over.
	Do(request func(*zk.Conn) error) error

	Log(level slog.Level, message string, args ...any)
}

// A Change is what has become of a connection.
type Change int

const (
	Connected    Change = iota // the session has a connection
	Disconnected               // it has none any more
	Failed                     // an attempt to connect has failed
)

// A Stake is what a session loses if it finds no server in time.
type Stake int

const (
	StakeNothing Stake = iota
	StakePlace         // its ephemeral nodes, such as a place in line, when the servers expire it
	StakeGrant         // what it holds, when trust runs out
)
