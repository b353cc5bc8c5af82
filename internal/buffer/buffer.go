// Package buffer makes the buffers of a client small. zk.Conn allocates megabytes, and most of a
// simulated client's time goes into clearing them.
package buffer

// Limit returns a protocol.ConnectOption that limits packets to so many bytes, in each direction.
// Package protocol sets it.
var Limit func(bytes int) any
