// Package zkwire is the part of ZooKeeper's wire protocol that the client's wrapped connection, the
// test kit and the embedded server share: operations, error codes, frames, headers, the handshake,
// and the encoding of fields.
//
// # Frames
//
// Client and server exchange frames. A frame is a length of four bytes and a payload of that many
// bytes. All numbers are big-endian. In this package and its users a frame includes its length, and
// functions that take offsets count from there.
//
//	connect request   version, last zxid seen, timeout, session, password, read-only (since 3.4)
//	connect response  version, timeout, session, password, read-only if the request has it
//	request           xid, operation, body
//	reply             xid, zxid, error code, body
//	event             a reply with [XidEvent], whose body is type, state and path
//
// The first frame in each direction is the handshake. A server answers requests in the order in
// which they were sent, but for pings and credentials.
//
// # Hostile input
//
// No function panics or allocates more than a small multiple of the bytes that have arrived,
// whatever lengths those bytes claim. Fields are read by a [Decoder], whose errors are checked
// once, at the end.
//
// internal/real/differential and the tests of recipestest/embedded have encoders of their own, on
// purpose: what they find out about a server must not rest on this package.
package zkwire
