package laws

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Outage stops the servers for an hour: before a call, while it waits, while the caller holds its
// lease, or when the client has let a request pass and zk.Conn doesn't have it yet. A call must not
// hang there. After half a minute the client must dial at a bounded rate, and it must not make a
// herd of requests once the servers are back.
//
// Sessions don't age without a quorum. So a session must last if its client comes back as soon as
// the servers do, and a session with a place in line must do that by itself. A call that waits goes
// on, even in the next session.
func Outage(t *testing.T, p *Player) {
	title := "What comes of a call while the servers are gone for an hour."
	p.law(t, law{name: "outage", title: title, embedded: true, most: 20, cells: func(sc *scene) {
		add := func(name string, after time.Duration, late bool) {
			sc.add(name, func(t *testing.T) { sc.outage(t, name, after, late) })
		}
		if slices.ContainsFunc(sc.calm.requests(), packet.creates) {
			add(unqueued, 0, false)
		}
		add("before the call", 0, false)
		if sc.warm {
			return
		}
		add("before the call and back too late", 0, true)
		if sc.calm.waits() {
			add("while it waits", 500*time.Millisecond, false)
		}
		if sc.calm.holds {
			add("while it holds", 4*time.Second, false)
		}
	}})
}

// unqueued stops the servers in an ACL function of the user's own. It runs when the client has let
// a request pass, and before zk.Conn has it.
const unqueued = "before zk.Conn has a request"

// outage takes the servers away some time after the call began. If late, they expire all sessions
// before the clients are back.
func (sc *scene) outage(t *testing.T, name string, after time.Duration, late bool) {
	const lasts = time.Hour
	var mine, theirs dialed
	var strike atomic.Pointer[func()]

	acl := func(string) []zk.ACL {
		if f := strike.Swap(nil); f != nil {
			(*f)()
			time.Sleep(time.Second)
		}
		return nil
	}

	in := setting{lasts: 3 * lasts, view: func(s *Stage, link bool, opts []protocol.ConnectOption) *protocol.Client {
		if link {
			mine.through = s.Link.Dial
			return s.Link.Client(s.T, append(opts, protocol.WithDialer(mine.dial), protocol.WithACLFor(acl))...)
		}
		theirs.through = s.Server.Dial
		if !late { // it is back in time, though it does not hurry
			opts = append(opts, protocol.WithSessionTimeout(10*timeout))
		}
		return s.Server.Client(s.T, append(opts, protocol.WithDialer(theirs.dial))...)
	}}

	sc.ready(t, in, func(s *Stage, v Verb, base int) {
		must(s.Other().Session(s.ctx)) // it cannot connect later
		session := must(s.Client.Session(s.ctx))
		place, back := 0, make(chan struct{})
		more := make(chan int) // requests than a lease costs

		resume := sync.OnceFunc(func() {
			before := s.Link.Count(recipestest.OpAny)
			s.Link.Meet(1, func([]string) {
				time.AfterFunc(10*time.Second, func() {
					soon := s.Link.Count(recipestest.OpAny)
					time.AfterFunc(10*time.Second, func() { more <- soon - before - (s.Link.Count(recipestest.OpAny) - soon) })
				})
			})
			check(s.Server.Embedded().Resume())
			close(back)
		})

		begin := func() {
			place = session.EphemeralBytes()
			s.Server.Embedded().Stop()
			time.AfterFunc(30*time.Second, func() { mine.change(func() { clear(mine.counts) }) })
			time.AfterFunc(lasts, func() {
				switch {
				case late:
					mine.change(func() { mine.refused = time.Now().Add(2 * timeout) })
					theirs.change(func() { theirs.refused = time.Now().Add(12 * timeout) }) // it is back last
					resume()
				case place > 0:
					resume()
				default: // it does not hurry
					mine.change(func() { mine.first = resume })
				}
			})
		}

		if name == unqueued {
			strike.Store(&begin)
		} else {
			time.AfterFunc(after, begin)
		}
		s.expired.Store(late || after > 0 || name == unqueued) // leases are lost
		time.Sleep(time.Millisecond)

		o := s.doWithin(v, s.ctx, 2*lasts)
		if strike.Load() != nil { // this time the call has created nothing
			o.back()
			return
		}

		<-back

		text := mine.busiest()
		if n := <-more; n > len(sc.calm.packets)+20 {
			t.Logf("%d requests more than usual:\n%s", n, s.Link.Trace())
			text = "! a herd of requests afterwards; " + text
		}

		if err := session.Err(); err != nil && !errors.Is(err, protocol.ErrUntrusted) && !late {
			text = "! the session is over (" + err.Error() + "); " + text
		}

		sc.note("the servers are gone", name, s.judge(v, o, base, *sc.calm)+"; "+text)
	})
}

// A dialed counts dials by the minute.
type dialed struct {
	through zk.Dialer
	mu      sync.Mutex
	counts  map[int64]int // by minute
	refused time.Time     // until then
	first   func()        // comes before the next dial
}

func (d *dialed) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	d.mu.Lock()
	if d.counts == nil {
		d.counts = make(map[int64]int)
	}
	d.counts[time.Now().Unix()/60]++
	first, refused := d.first, time.Now().Before(d.refused)
	d.mu.Unlock()
	if refused {
		return nil, syscall.ECONNREFUSED
	}
	if first != nil {
		first()
	}
	return d.through(network, address, timeout)
}

func (d *dialed) change(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// busiest says how many dials there were in the worst minute.
func (d *dialed) busiest() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	most := 0
	for _, n := range d.counts {
		most = max(most, n)
	}
	for _, bound := range []int{20, 70, 120} { // the last to keep a place in line
		if most <= bound {
			return fmt.Sprintf("up to %d dials a minute", bound)
		}
	}
	return "! hundreds of dials a minute"
}
