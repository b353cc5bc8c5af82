// Package buffer makes the buffers of a client small. zk.Conn allocates megabytes, and clearing
// them is most of what a simulated client costs.
package buffer

// Limit returns a protocol.ConnectOption: packets have at most so many bytes, in each direction.
// Package protocol sets it.
var Limit func(bytes int) any
