package suite

import (
	"fmt"
	"testing"
	"time"

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

// SlowFaults last for parts and multiples of a session timeout, in virtual time. Every call returns
// them in the same order, kind by kind.
func SlowFaults(timeout time.Duration) []Fault {
	var all []Fault
	for _, kind := range []struct {
		name  string
		begin func(*recipestest.Link)
	}{
		{"cut", (*recipestest.Link).Cut},
		{"stall", (*recipestest.Link).Stall},
		{"stall requests", (*recipestest.Link).StallRequests},
		{"stall replies", (*recipestest.Link).StallReplies},
	} {
		for _, d := range []time.Duration{timeout / 20, timeout / 3, 9 * timeout / 10, 3 * timeout} {
			all = append(all, Fault{
				fmt.Sprintf("%s for %v", kind.name, d),
				func(_ *recipestest.Server, link *recipestest.Link, _ int64) {
					kind.begin(link)
					time.AfterFunc(d, link.Heal)
				},
			})
		}
	}

	return all
}

// At is [recipestest.Link.At] for a do that must end before the test goes on. met disarms the
// trigger, waits until do has ended (if it has begun), and reports whether it has.
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

// QuickFaultAtEachStep plays meet with each quick fault at each step, until meet reports that its
// work ended before that step came. It runs in virtual time, on a fresh server each time.
func QuickFaultAtEachStep(t *testing.T, meet func(t *testing.T, srv *recipestest.Server, f Fault, step int) (met bool)) {
	for _, f := range QuickFaults {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			Sample(t, func(step int) (met bool) {
				recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) { met = meet(t, srv, f, step) })
				return met
			})
		})
	}
}

// Sweep calls meet with the steps 1, 2, 3 and so on, until meet reports that its work ended before
// that step came.
func Sweep(t *testing.T, meet func(step int) (met bool)) {
	t.Helper()
	sweep(t, 1, meet)
}

// Sample is Sweep, but with -short it leaves out four steps of five.
func Sample(t *testing.T, meet func(step int) (met bool)) {
	t.Helper()
	if testing.Short() {
		sweep(t, 5, meet)
	} else {
		sweep(t, 1, meet)
	}
}

func sweep(t *testing.T, stride int, meet func(step int) (met bool)) {
	t.Helper()
	const most = 300
	for step := 1; step < most; step += stride {
		if !meet(step) {
			return
		}
	}

	t.Fatalf("no end after %d steps", most)
}
