package laws

import (
	"context"

	"github.com/zkrecipes/zkrecipes/barrier"
)

func setBarrier(s *Stage)    { check(barrier.New(s.Other(), s.Path).Set(s.ctx)) }
func removeBarrier(s *Stage) { check(barrier.New(s.Other(), s.Path).Remove(s.ctx)) }

var barrierRows = []Row{
	{"barrier.Barrier.Set", func(s *Stage) Verb {
		return Verb{
			Before: func() { removeBarrier(s) },
			Call:   call(barrier.New(s.Client, s.Path).Set),
			Effect: func() int { return s.Count("^$") },
			Loose:  true,
		}
	}},
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
	{"barrier.Barrier.Set set before", func(s *Stage) Verb {
		return Verb{
			Before: func() { setBarrier(s) },
			Call:   call(barrier.New(s.Client, s.Path).Set),
		}
	}},
	{"barrier.Barrier.Remove", func(s *Stage) Verb {
		return Verb{
			Before: func() { setBarrier(s) },
			Call:   call(barrier.New(s.Client, s.Path).Remove),
			Effect: func() int { return -s.Count("^$") },
			Loose:  true,
		}
	}},
	{"barrier.Barrier.Wait", func(s *Stage) Verb {
		return Verb{
			Before: func() { setBarrier(s) },
			Beside: func(ctx context.Context) { barrier.New(s.Other(), s.Path).Remove(ctx) },
			Call:   call(barrier.New(s.Client, s.Path).Wait),
		}
	}},
	{"barrier.Barrier.Wait not set", func(s *Stage) Verb { return Verb{Call: call(barrier.New(s.Client, s.Path).Wait)} }},
}
