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

var (
	alone, pair     = doorOf(1), doorOf(2)
	entering        = alone.acquiring((*doublebarrier.Barrier).Enter)
	waitingToEnter  = doorOf(1, doublebarrier.WithWaiting()).acquiring((*doublebarrier.Barrier).Enter)
	leavingWithPair = pair.returning((*doublebarrier.Barrier).Enter, (*doublebarrier.Entry).Leave)
)

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
	return changed(verb, func(s *Stage, v *Verb) {
		v.Beside = partner(s)
	})
}

var doublebarrierRows = []Row{
	{"doublebarrier.Barrier.Enter alone", entering},
	{"doublebarrier.Barrier.Enter", paired(pair.acquiring((*doublebarrier.Barrier).Enter))},
	{"doublebarrier.Barrier.Enter during a round", changed(behind(entering, entering), func(_ *Stage, v *Verb) {
		enter := v.Call
		v.Call = func(ctx context.Context) (*Held, error) {
			h, err := enter(ctx)
			if errors.Is(err, doublebarrier.ErrFull) {
				err = nil
			}
			return h, err
		}
	})},
	{"doublebarrier.Barrier.Enter waits for a round to end", behind(waitingToEnter, entering)},
	{"doublebarrier.Barrier.Do", paired(pair.doing((*doublebarrier.Barrier).Do))},
	{"doublebarrier.Barrier.Waiting", func(s *Stage) Verb {
		b := pair.make(s)
		return Verb{Call: call(func(ctx context.Context) error { return only(b.Waiting(ctx)) })}
	}},
	{"doublebarrier.Barrier.Waiting one inside", listing(alone, (*doublebarrier.Barrier).Enter, (*doublebarrier.Barrier).Waiting)},
	{"doublebarrier.Entry.Multi", alone.fencing((*doublebarrier.Barrier).Enter, (*doublebarrier.Entry).Multi)},
	{"doublebarrier.Entry.Leave alone", alone.returning((*doublebarrier.Barrier).Enter, (*doublebarrier.Entry).Leave)},
	{"doublebarrier.Entry.Leave first", changed(leavingWithPair, func(s *Stage, v *Verb) {
		var theirs *doublebarrier.Entry
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
	})},
	{"doublebarrier.Entry.Leave last", changed(leavingWithPair, func(s *Stage, v *Verb) {
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
	})},
}
