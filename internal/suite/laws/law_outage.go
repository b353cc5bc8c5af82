package laws

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Outage takes the servers away for an hour: before a call, while it waits, or while its result is
// held. After the first half minute the client dials at a bounded rate, and it does not ask for more
// than usual when the servers are back. A session lasts if its client is back as soon as they are,
// because sessions do not age without a quorum. One with a place in line is back in time by itself.
// A call that waits goes on, also in the next session.
func Outage(t *testing.T, p *Player) {
	title := "What comes of a call while the servers are gone for an hour."
	p.law(t, law{name: "outage", title: title, embedded: true, most: 20, cells: func(sc *scene) {
		add := func(name string, after time.Duration, late bool) {
			sc.add(name, func(t *testing.T) { sc.outage(t, name, after, late) })
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

// outage takes the servers away some time after the call began. If late, they expire all sessions
// before the clients are back.
func (sc *scene) outage(t *testing.T, name string, after time.Duration, late bool) {
	const lasts = time.Hour
	var mine, theirs dialed
	in := setting{lasts: 3 * lasts, view: func(s *Stage, link bool, opts []protocol.ConnectOption) *protocol.Client {
		if link {
			mine.through = s.Link.Dial
			return s.Link.Client(s.T, append(opts, protocol.WithDialer(mine.dial))...)
		}
		theirs.through = s.Server.Dial
		if !late { // it is back in time, though it does not hurry
			opts = append(opts, protocol.WithSessionTimeout(10*timeout))
		}
		return s.Server.Client(s.T, append(opts, protocol.WithDialer(theirs.dial))...)
	}}
	sc.play(t, in, func(s *Stage, v Verb) {
		if sc.warm {
			s.warm(v)
		}
		base := must(v.prepare())
		must(s.Other().Session(s.ctx)) // it cannot connect later
		session := must(s.Client.Session(s.ctx))
		place, back := 0, make(chan struct{})
		more := make(chan int) // requests than what is held costs
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
		time.AfterFunc(after, func() {
			place = session.EphemeralBytes()
			s.Server.Embedded().Stop()
			time.AfterFunc(30*time.Second, mine.reset)
			time.AfterFunc(lasts, func() {
				switch {
				case late:
					mine.refuse(2 * timeout)
					theirs.refuse(12 * timeout) // it is back last
					resume()
				case place > 0:
					resume()
				default: // it does not hurry
					mine.next(resume)
				}
			})
		})
		s.expired.Store(late || after > 0) // what is held is lost
		time.Sleep(time.Millisecond)
		o := s.doWithin(v, s.ctx, 2*lasts)
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

// refuse refuses all dials for some time.
func (d *dialed) refuse(while time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused = time.Now().Add(while)
}

// next has first come before each dial.
func (d *dialed) next(first func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.first = first
}

func (d *dialed) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.counts)
}

// busiest says how many dials there were in the worst minute.
func (d *dialed) busiest() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	most := 0
	for _, n := range d.counts {
		most = max(most, n)
	}
	switch {
	case most <= 20:
		return "up to 20 dials a minute"
	case most <= 70:
		return "up to 70 dials a minute"
	case most <= 120: // to keep a place in line
		return "up to 120 dials a minute"
	}
	return "! hundreds of dials a minute"
}
