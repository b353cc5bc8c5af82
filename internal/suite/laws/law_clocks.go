package laws

import (
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/clock"
)

// Clocks steps the wall clock at each packet of a call, half-way through a wait, and while a result
// is held. A step forward is what a process finds that has been suspended, and its session has
// expired meanwhile: what it holds has ended by then. After a step alone, too, for it cannot know.
// A step back ends nothing. Who notices a step first is chance, and so is what some calls return.
func Clocks(t *testing.T, p *Player) {
	const far = time.Hour
	steps := []way{
		{"the clock steps forward", func(s *Stage, _ Verb) {
			s.expired.Store(true) // who loses what it holds, too
			s.gone.Store(s.others.Load())
			clock.Step(far)
		}},
		{"the process is suspended", func(s *Stage, _ Verb) {
			s.gone.Store(s.others.Load())
			clock.Step(far)
			s.expire()
			s.Link.Cut()
			s.Link.Heal()
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
				sc.add(way.name+" while it waits", func(t *testing.T) { sc.halfway(t, way) })
			}
			if back := i == len(steps)-1; sc.calm.holds && !back {
				sc.add(way.name+" while it holds", func(t *testing.T) {
					sc.play(t, setting{}, func(s *Stage, v Verb) { sc.taken(s, v, way) })
				})
			} else if sc.calm.holds {
				sc.add(way.name+" while it holds", func(t *testing.T) { sc.kept(t, way) })
			}
		}
	}})
}

// kept has something happen that must not take away what is held.
func (sc *scene) kept(t *testing.T, way way) {
	sc.play(t, setting{}, func(s *Stage, v Verb) {
		must(v.prepare())
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
	})
}
