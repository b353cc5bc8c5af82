package laws

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
)

type entries = kind[*doublebarrier.Barrier, *doublebarrier.Entry]

func doorOf(n int, opts ...doublebarrier.Option) entries {
	return entries{
		own:  "member-",
		make: func(s *Stage) *doublebarrier.Barrier { return doublebarrier.New(s.Client, s.Path, n, opts...) },
		back: (*doublebarrier.Entry).Leave,
	}
}

var alone, pair = doorOf(1), doorOf(2)

// partner enters again and again with the other client, and leaves at once.
func partner(s *Stage) func(context.Context) {
	b := pair.make(s.other())
	return func(ctx context.Context) {
		for ctx.Err() == nil {
			if e, err := b.Enter(ctx); err == nil {
				e.Leave(ctx)
			}
		}
	}
}

// paired is a verb that a partner joins.
func paired(verb func(*Stage) Verb) func(*Stage) Verb {
	return func(s *Stage) Verb {
		v := verb(s)
		v.Beside = partner(s)
		return v
	}
}

var doublebarrierRows = []Row{
	{"doublebarrier.Barrier.Enter alone", alone.acquiring((*doublebarrier.Barrier).Enter)},
	{"doublebarrier.Barrier.Enter", paired(pair.acquiring((*doublebarrier.Barrier).Enter))},
	{"doublebarrier.Barrier.Enter during a round", func(s *Stage) Verb {
		v := behind(alone.acquiring((*doublebarrier.Barrier).Enter), alone.acquiring((*doublebarrier.Barrier).Enter))(s)
		enter := v.Call
		v.Call = func(ctx context.Context) (*Held, error) {
			h, err := enter(ctx)
			if errors.Is(err, doublebarrier.ErrFull) {
				err = nil
			}
			return h, err
		}
		return v
	}},
	{"doublebarrier.Barrier.Enter waits for a round to end", behind(
		doorOf(1, doublebarrier.WithWaiting()).acquiring((*doublebarrier.Barrier).Enter), alone.acquiring((*doublebarrier.Barrier).Enter))},
	{"doublebarrier.Barrier.Do", paired(pair.doing((*doublebarrier.Barrier).Do))},
	{"doublebarrier.Barrier.Waiting", func(s *Stage) Verb {
		b := pair.make(s)
		return Verb{Call: call(func(ctx context.Context) error { _, err := b.Waiting(ctx); return err })}
	}},
	{"doublebarrier.Barrier.Waiting one inside", listing(alone, (*doublebarrier.Barrier).Enter, (*doublebarrier.Barrier).Waiting)},
	{"doublebarrier.Entry.Multi", alone.fencing((*doublebarrier.Barrier).Enter, (*doublebarrier.Entry).Multi)},
	{"doublebarrier.Entry.Leave alone", alone.returning((*doublebarrier.Barrier).Enter, (*doublebarrier.Entry).Leave)},
	{"doublebarrier.Entry.Leave first", func(s *Stage) Verb {
		var theirs *doublebarrier.Entry
		v := pair.returning((*doublebarrier.Barrier).Enter, (*doublebarrier.Entry).Leave)(s)
		enter := v.Before
		v.Before = func() {
			entered := make(chan *doublebarrier.Entry, 1)
			go func() {
				e, _ := pair.make(s.other()).Enter(s.ctx)
				entered <- e
			}()
			enter()
			theirs = <-entered
		}
		v.Beside = func(ctx context.Context) { theirs.Leave(ctx) }
		return v
	}},
	{"doublebarrier.Entry.Leave last", func(s *Stage) Verb {
		v := pair.returning((*doublebarrier.Barrier).Enter, (*doublebarrier.Entry).Leave)(s)
		enter := v.Before
		v.Before = func() {
			go func() {
				if e, err := pair.make(s.other()).Enter(s.ctx); err == nil {
					e.Leave(s.ctx)
				}
			}()
			enter()
			time.Sleep(timeout / 10) // the other member has left
		}
		return v
	}},
}
