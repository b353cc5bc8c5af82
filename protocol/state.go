package protocol

import "github.com/zkrecipes/zkrecipes/internal/session"

// A State is the state of a client's session: see [WithStateListener].
type State int

// The states of a client.
const (
	Connected = State(session.Connected) // there is a session and a connection
	Suspended = State(session.Suspended) // the connection is gone, but the session can still be trusted
	Lost      = State(session.Lost)      // the session has ended and its locks are lost
	Closed    = State(session.Closed)    // the client was closed; no state comes after this one
)

// String returns the state in lower case, as in "connected".
func (s State) String() string {
	names := [...]string{Connected: "connected", Suspended: "suspended", Lost: "lost", Closed: "closed"}
	if s < Connected || s > Closed {
		return "unknown"
	}
	return names[s]
}
