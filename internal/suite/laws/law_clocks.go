package laws

import (
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/clock"
)

// Clocks steps the wall clock at each packet of a call, in the middle of a wait and while the
// caller holds a lease. A process that was suspended wakes up to a step forward, and its session
// has expired. So a step forward must end its leases (even if the session has not expired, because
// the process can't know). A step back must end nothing. Which goroutine notices a step first is
// chance, and so is the outcome of some calls.
func Clocks(t *testing.T, p *Player) {
	const far = time.Hour
	steps := []way{
		{"the clock steps forward", func(s *Stage, _ Verb) {
			s.expired.Store(true) // the leases end, too
			s.gone.Store(s.others.Load())
			clock.Step(far)
		}},
		{"the process is suspended", func(s *Stage, _ Verb) {
			s.gone.Store(s.others.Load())
			clock.Step(far)
			expire(s, nil)
		}},
		{"the clock steps back", func(*Stage, Verb) { clock.Step(-far) }},
	}

	title := "What comes of a call during which the wall clock steps by an hour."
	p.law(t, law{name: "clocks", title: title, embedded: true, alone: true, loose: true, most: 250, cells: func(sc *scene) {
		for i, way := range steps {
			for _, p := range sc.calm.packets {
				sc.broken(way.name+" before", p, setting{}, func(s *Stage, _ []string) { way.take(s, Verb{}) }, sc.judged)
			}
			if sc.warm {
				continue
			}

			if sc.calm.waits() {
				sc.cell(way.name+" while it waits", setting{}, func(s *Stage, v Verb, base int) { sc.halfway(s, v, base, way) })
			}

			if sc.calm.holds {
				sc.cell(way.name+" while it holds", setting{}, func(s *Stage, v Verb, _ int) {
					if i < len(steps)-1 {
						sc.taken(s, v, way)
					} else {
						sc.kept(s, v, way)
					}
				})
			}
		}
	}})
}

// kept plays a way that must not end a lease.
func (sc *scene) kept(s *Stage, v Verb, way way) {
	o := s.do(v, s.ctx)
	check(o.err)
	s.rest()
	way.take(s, v)
	s.rest()
	text := "goes on"
	if err := o.held.Err(); err != nil {
		text = "! " + class(err)
	}
	if err := o.back(); err != nil {
		text = "! " + text + "; giving back: " + class(err)
	}
	sc.note("taken away", way.name, text)
}
