package laws

import (
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"strings"
	"testing"
	"time"
)

// Waiting breaks something half-way through a wait, when the call sends nothing and only expects
// something from the server: its node is deleted, its session expires, its connection breaks for a
// moment, or for so long that it cannot be trusted.
func Waiting(t *testing.T, p *Player) {
	faults := []way{
		{"node deleted", func(s *Stage, v Verb) { s.gone.Store(v.Own == ""); s.deleteOwn() }},
		{"session expired", func(s *Stage, _ Verb) { s.expire(); s.Link.Cut(); s.Link.Heal() }},
		{"cut", func(s *Stage, _ Verb) { s.Link.Cut(); s.Link.Heal() }},
		{"cut for a second", func(s *Stage, _ Verb) { s.Link.Cut(); time.AfterFunc(time.Second, s.Link.Heal) }},
		{"silence for a second", func(s *Stage, _ Verb) { s.Link.Stall(); time.AfterFunc(time.Second, s.Link.Heal) }},
		{"silence for too long", func(s *Stage, _ Verb) { s.Link.Stall(); time.AfterFunc(2*timeout, s.Link.Heal) }},
		{"cancelled", func(s *Stage, _ Verb) { s.cancel() }},
		{"client closed", func(s *Stage, _ Verb) { s.Client.Close() }},
	}
	title := "What comes of a call that waits, when something breaks half-way."
	p.law(t, law{name: "waiting", title: title, cells: func(sc *scene) {
		if !sc.calm.waits() {
			return
		}
		for _, fault := range faults {
			sc.add(fault.name, func(t *testing.T) { sc.halfway(t, fault) })
		}
	}})
}

// halfway has a fault come while a call waits.
func (sc *scene) halfway(t *testing.T, fault way) {
	sc.play(t, setting{}, func(s *Stage, v Verb) {
		if sc.warm {
			s.warm(v)
		}
		base := must(v.prepare())
		ctx, cancel := withCancel(s)
		defer cancel()
		time.AfterFunc(500*time.Millisecond, func() { fault.take(s, v) })
		o := s.do(v, ctx)
		text := class(o.err)
		if fault.name != "client closed" {
			text = s.judge(v, o, base, *sc.calm)
		} else if !strings.Contains(text, "closed") {
			text = "! " + text
		}
		sc.note("while it waits", fault.name, text)
	})
}

// deleteOwn has an operator delete all nodes of the client's session.
func (s *Stage) deleteOwn() {
	operator := must(recipe.SessionOf(s.ctx, s.Other()))
	for _, path := range s.Own("") {
		operator.Delete(s.ctx, path, -1)
	}
}
