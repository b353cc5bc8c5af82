package laws

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A way is how something is taken away from its holder.
type way struct {
	name string
	take func(*Stage, Verb)
}

var ways = []way{
	{"node deleted", deleteHeld},
	{"session expired", func(s *Stage, _ Verb) { s.expire() }},
	{"silence", func(s *Stage, _ Verb) { s.Link.Stall() }},
	{"silence while the servers' clocks are 4% fast", func(s *Stage, _ Verb) {
		s.Server.Embedded().SetClockRate(1.04)
		s.Link.Stall()
	}},
	{"client closed", func(s *Stage, _ Verb) { s.Client.Close() }},
	{"node deleted while no request is answered", func(s *Stage, v Verb) { // the message is enough
		s.Link.StallRequests()
		deleteHeld(s, v)
	}},
}

func deleteHeld(s *Stage, v Verb) {
	for _, path := range s.Own(v.Own) {
		check(s.operator().Delete(s.ctx, path, -1))
	}
}

// Taken takes a lease away: its node is deleted, its session expires or its client is cut off. Err,
// Done and Context must report that with the first message that says so. They must report it before
// another client holds the same lock.
func Taken(t *testing.T, p *Player) {
	p.law(t, law{name: "taken", title: "What is held is taken away.", cells: func(sc *scene) {
		for _, way := range ways {
			if sc.calm.holds && !sc.warm && (sc.connect == "" || !strings.Contains(way.name, "clocks")) {
				sc.cell(way.name, setting{}, func(s *Stage, v Verb, _ int) { sc.taken(s, v, way) })
			}
		}
	}})
}

func (sc *scene) taken(s *Stage, v Verb, way way) {
	o := s.do(v, s.ctx)
	check(o.err)
	time.Sleep(timeout)
	ctx, cancel := o.held.Context(s.ctx)
	defer cancel()
	h := o.held.Hold
	check(h.Err())

	// Another client wants the same, and looks at the holder when it gets it.
	rival := make(chan string, 1)
	go func() {
		r := s.rival(sc.row)
		switch {
		case r.err != nil:
			rival <- "no other client gets it"
		case h.Err() == nil:
			rival <- "! another client held it before"
		default:
			rival <- "then another client holds it"
		}
		r.back()
	}()
	time.Sleep(time.Second)
	s.settled()
	shared := len(rival) > 0

	began := time.Now()
	way.take(s, v)
	select {
	case <-h.Done():
	case <-time.After(2 * timeout):
	}
	text := "ends at once"
	if took := time.Since(began); took > 0 {
		text = "ends within " + ceil(took).String()
	}
	s.settled()
	switch {
	case h.Err() == nil || ctx.Err() == nil:
		text = "! does not end"
	case !errors.Is(h.Err(), protocol.ErrLost) || !errors.Is(context.Cause(ctx), protocol.ErrLost):
		text = "! " + class(h.Err()) + ", and the cause is " + class(context.Cause(ctx))
	}

	then := <-rival
	switch {
	case shared:
		then = "others hold it, too"
	case strings.HasPrefix(way.name, "node deleted") && strings.HasPrefix(then, "!"): // both see it at the same moment
		then = "then another client holds it"
	case way.name == "session expired": // before its time: no client can know
		then = strings.TrimPrefix(then, "! ")
	}
	text += "; " + then
	s.Link.Heal()
	if err := o.back(); !errors.Is(err, protocol.ErrLost) {
		text = "! " + text + "; giving back: " + class(err)
	}
	sc.note("taken away", way.name, text)
}

// rival makes the call of a row with the other client, until it succeeds.
func (s *Stage) rival(row Row) (o outcome) {
	other := *s
	other.Client = s.Other()
	v := other.verb(row)
	v.Beside = nil
	ctx, cancel := context.WithTimeout(s.ctx, 6*timeout)
	defer cancel()
	for {
		if o = other.do(v, ctx); o.err == nil || ctx.Err() != nil {
			return o
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// ceil rounds a time up to halves of a second, as a table has it.
func ceil(d time.Duration) time.Duration {
	const step = time.Second / 2
	return (d + step - 1) / step * step
}
