package laws

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"
)

// Waiting lets a fault strike in the middle of a wait, when the call sends nothing and only expects
// a watch event. Its node is deleted, its session expires or its connection breaks (for a moment,
// or until the session can't be trusted any more).
func Waiting(t *testing.T, p *Player) {
	faults := []way{
		{"node deleted", func(s *Stage, v Verb) { s.gone.Store(v.Own == ""); s.deleteOwn() }},
		{"session expired", func(s *Stage, _ Verb) { expire(s, nil) }},
		{"cut", func(s *Stage, _ Verb) { cut(s, nil) }},
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
			sc.cell(fault.name, setting{}, func(s *Stage, v Verb, base int) { sc.halfway(s, v, base, fault) })
		}
		if sc.calm.holds && !sc.warm {
			sc.cell("restless", setting{}, sc.restless)
		}
	}})
}

// halfway has a fault come while a call waits.
func (sc *scene) halfway(s *Stage, v Verb, base int, fault way) {
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
}

// restless deletes a waiter's node just before its turn comes. Until then its predecessors give up
// one after the other. (They are more than it takes until a waiter watches its own node.) The last
// of them is granted and releases at once, so the waiter finds that it is the first in line.
func (sc *scene) restless(s *Stage, v Verb, base int) {
	const each = 50 * time.Millisecond
	var rivals sync.WaitGroup
	turn, over := context.WithCancel(s.ctx)
	for lasts := patience; lasts > each; lasts -= each { // the last in line gives up first
		rival := s.other().verb(sc.row)
		ctx, cancel := context.WithTimeout(s.ctx, lasts)
		if lasts == patience { // and the first gets its turn, and gives it back at once
			ctx = turn
		}
		defer cancel()
		rivals.Go(func() {
			if held, err := rival.Call(ctx); err == nil && held != nil {
				held.Back(s.ctx)
			}
		})
		s.settled()
	}
	time.AfterFunc(patience-each/2, s.deleteOwn)
	o := s.do(v, s.ctx)
	over() // without places in line the call can come first
	rivals.Wait()
	sc.note("while it waits", "node deleted after those before it gave up", s.judge(v, o, base, *sc.calm))
}

// deleteOwn has an operator delete all nodes of the client's session.
func (s *Stage) deleteOwn() {
	operator := s.operator()
	for _, path := range s.Own("") {
		operator.Delete(s.ctx, path, -1)
	}
}
