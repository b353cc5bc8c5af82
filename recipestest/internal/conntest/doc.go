// Package conntest holds the connections of the test kit against the tests of
// golang.org/x/net/nettest. It is a module of its own, so that users of the test kit do not require
// that one.
package conntest
