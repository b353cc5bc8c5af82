package suite

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A Fault happens to a client before one of its packets passes. link and session are the client's.
type Fault struct {
	Name string
	Do   func(srv *recipestest.Server, link *recipestest.Link, session int64)
}

// QuickFaults end at once.
var QuickFaults = []Fault{
	{"cut", func(_ *recipestest.Server, link *recipestest.Link, _ int64) { link.Cut(); link.Heal() }},
	{"lost reply", func(_ *recipestest.Server, link *recipestest.Link, _ int64) { link.LoseReply(recipestest.OpAny, 1) }},
	{"two lost replies", func(_ *recipestest.Server, link *recipestest.Link, _ int64) { link.LoseReply(recipestest.OpAny, 2) }},
	{"expiry", func(srv *recipestest.Server, _ *recipestest.Link, session int64) { Expire(srv, session) }},
}

// Expire ends a session. (If the machine stood still, it may have ended by itself.)
func Expire(srv *recipestest.Server, session int64) {
	if e := srv.Embedded(); e != nil {
		e.ExpireSession(session)
		return
	}
	srv.ExpireSession(session)
}

// At is [recipestest.Link.At] for a do that must end before the test goes on. met disarms the
// trigger and waits until do has ended (if it has begun). It reports whether do has ended.
func At(link *recipestest.Link, step int, do func()) (met func() bool) {
	done := make(chan struct{})
	stop := link.At(step, func() {
		defer close(done)
		do()
	})

	return func() bool {
		if stop() {
			return false
		}
		<-done
		return true
	}
}

// Sweep calls meet with the steps 1, 2, 3 and so on until meet reports that its work ended before
// that step came. With -short it leaves out two of three steps.
func Sweep(t *testing.T, meet func(step int) (met bool)) {
	t.Helper()
	const most = 300
	for step := 1; step < most; step += Size(1, 3) {
		if !meet(step) {
			return
		}
	}

	t.Fatalf("no end after %d steps", most)
}
