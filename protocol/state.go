package protocol

import "github.com/zkrecipes/zkrecipes/internal/session"

// A State is the state of a client's session: see [WithStateListener].
type State int

// The states of a client.
const (
	Connected = State(session.Connected) // there is a session, and a connection
	Suspended = State(session.Suspended) // the connection is gone; the session is not, and can still be trusted
	Lost      = State(session.Lost)      // the session is over, and with it all that was held
	Closed    = State(session.Closed)    // the client was closed; no state comes after this one
)

// String returns the state in lower case, as in "connected".
func (s State) String() string {
	switch s {
	case Connected:
		return "connected"
	case Suspended:
		return "suspended"
	case Lost:
		return "lost"
	case Closed:
		return "closed"
	}
	return "unknown"
}
