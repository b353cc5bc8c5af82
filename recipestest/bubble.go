package recipestest

import (
	"testing"
	"testing/synctest"
)

// Bubble runs test in virtual time, with a server in memory:
//
//	recipestest.Bubble(t, func(t *testing.T, server *recipestest.Server) { ... })
//
// The server has opts and [WithInMemory], and runs in a testing/synctest bubble. Time begins in the
// year 2000, and advances as soon as all goroutines of test are blocked. So minutes of silence pass
// in milliseconds, and a result doesn't depend on how busy the machine is. synctest.Wait blocks
// until nothing more can happen at this moment.
//
// Bubble returns when test has returned and all its goroutines have ended. test must use its own t
// and server, and must not call t.Run, t.Parallel or t.Deadline. Make clients with [Server.Client],
// [Server.Conn] or a [Link], or dial with [Server.Dial]. Nothing in the bubble may wait for
// anything outside (a network connection, or a channel made there).
func Bubble(t *testing.T, test func(t *testing.T, server *Server), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		test(t, Start(t, append(opts[:len(opts):len(opts)], WithInMemory())...))
	})
}
