// Package conntest runs the tests of golang.org/x/net/nettest on the test kit's connections. It is
// a module of its own so that users of the test kit don't require that package.
package conntest
