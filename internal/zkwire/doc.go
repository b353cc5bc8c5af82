// Package zkwire is a part of ZooKeeper's wire protocol: operations, error codes, frames, headers,
// the handshake, and the encoding of fields. The client's connection, the test kit and the embedded
// server share it.
//
// # Frames
//
// Client and server exchange frames. A frame is a length of four bytes and a payload of that many
// bytes. All numbers are big-endian. In this package and its users a frame includes its length, and
// offsets count from there.
//
//	connect request   version, last zxid seen, timeout, session, password, read-only (since 3.4)
//	connect response  version, timeout, session, password, read-only if the request has it
//	request           xid, operation, body
//	reply             xid, zxid, error code, body
//	event             a reply with [XidEvent], whose body is type, state and path
//
// The first frame in each direction is the handshake. A server answers requests in the order in
// which they were sent (except pings and credentials).
//
// # Hostile input
//
// Whatever lengths the bytes claim, no function panics, and none allocates more than a small
// multiple of the bytes that have arrived. A [Decoder] reads fields, and its caller checks for
// errors once, at the end.
//
// internal/real/differential and the tests of recipestest/embedded have their own encoders, so that
// their verdict on a server doesn't depend on this package.
package zkwire
