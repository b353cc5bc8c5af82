package recipestest

import (
	"testing"
	"testing/synctest"
)

// Bubble runs test in virtual time, with a server in memory:
//
//	recipestest.Bubble(t, func(t *testing.T, server *recipestest.Server) { ... })
//
// The server is started with opts and [WithInMemory], in a bubble of testing/synctest. Its time
// begins with the year 2000, and advances as soon as all goroutines of test are blocked. So minutes
// of silence pass in milliseconds, a result does not depend on how busy the machine is, and
// synctest.Wait blocks until nothing more happens at this moment.
//
// Bubble returns when test and all goroutines that it has started have ended. test must use the t
// and the server that it is given, and must not call t.Run, t.Parallel or t.Deadline. Clients are
// made by [Server.Client], [Server.Conn] or a [Link], or dial with [Server.Dial]. Nothing within
// the bubble may wait for what is outside: a network connection, or a channel that was made there.
func Bubble(t *testing.T, test func(t *testing.T, server *Server), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		test(t, Start(t, append(opts[:len(opts):len(opts)], WithInMemory())...))
	})
}
