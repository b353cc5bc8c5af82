package laws

import (
	"context"

	"github.com/zkrecipes/zkrecipes/barrier"
)

func setBarrier(s *Stage)    { check(barrier.New(s.Other(), s.Path).Set(s.ctx)) }
func removeBarrier(s *Stage) { check(barrier.New(s.Other(), s.Path).Remove(s.ctx)) }

// barred is a verb of a barrier that the other client has set or removed before the call.
func barred(before func(*Stage), verb func(*barrier.Barrier, context.Context) error) func(*Stage) Verb {
	return func(s *Stage) Verb {
		b := barrier.New(s.Client, s.Path)
		return Verb{
			Before: func() { before(s) },
			Call:   call(func(ctx context.Context) error { return verb(b, ctx) }),
			Loose:  true,
		}
	}
}

var barrierRows = []Row{
	{"barrier.Barrier.Set", seen((*Stage).Count, "^$", barred(removeBarrier, (*barrier.Barrier).Set))},
	{"barrier.Barrier.Set ephemeral", func(s *Stage) Verb {
		return Verb{
			Before: func() { removeBarrier(s) },
			Call: func(ctx context.Context) (*Held, error) {
				b := barrier.New(s.Client, s.Path, barrier.WithEphemeral())
				return &Held{nil, b.Remove}, b.Set(ctx)
			},
			Effect: func() int { return s.Count("^$") },
			Loose:  true,
		}
	}},
	{"barrier.Barrier.Set set before", barred(setBarrier, (*barrier.Barrier).Set)},
	{"barrier.Barrier.Remove", seen((*Stage).fewer, "^$", barred(setBarrier, (*barrier.Barrier).Remove))},
	{"barrier.Barrier.Wait", changed(barred(setBarrier, (*barrier.Barrier).Wait), func(s *Stage, v *Verb) {
		v.Beside = func(ctx context.Context) { barrier.New(s.Other(), s.Path).Remove(ctx) }
	})},
	{"barrier.Barrier.Wait not set", func(s *Stage) Verb { return Verb{Call: call(barrier.New(s.Client, s.Path).Wait)} }},
}
