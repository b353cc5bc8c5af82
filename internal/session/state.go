package session

// A State is the state of a client's session.
type State int

// Package protocol documents the states.
const (
	Connected State = iota + 1
	Suspended
	Lost
	Closed
)
