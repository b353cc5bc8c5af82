package session

// A State is the state of a client's session.
type State int

// The states of a client: see package protocol.
const (
	Connected State = iota + 1
	Suspended
	Lost
	Closed
)
