package laws

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/election"
)

var (
	terms = kind[*election.Election, *election.Term]{
		own:  "lock-",
		make: func(s *Stage) *election.Election { return election.New(s.Client, s.Path) },
		back: (*election.Term).Resign,
	}
	campaigning = terms.acquiring(campaign)
)

func campaign(e *election.Election, ctx context.Context) (*election.Term, error) {
	return e.Campaign(ctx, []byte("me"))
}

// leads returns an error if another candidate leads than the one with this node.
func leads(node string, l election.Leader, err error) error {
	if err == nil && !l.Vacant() && l.Node != node {
		err = errors.New("another leads")
	}
	return err
}

var electionRows = []Row{
	{"election.Election.Campaign", campaigning},
	{"election.Election.Campaign behind a leader", behind(campaigning, campaigning)},
	{"election.Election.Run", running(func(s *Stage) func(context.Context, func()) error {
		e := terms.make(s)
		return func(ctx context.Context, run func()) error {
			return worked(ctx, e.Run(ctx, nil, func(context.Context, *election.Term) error { run(); return errEnough }))
		}
	})},
	{"election.Election.Listen", running(func(s *Stage) func(context.Context, func()) error {
		e := terms.make(s)
		return func(ctx context.Context, run func()) error {
			listening, stop := stoppable(ctx)
			defer stop()
			return worked(ctx, e.Listen(listening, nil, func(state election.State) {
				if state.Term != nil && listening.Err() == nil {
					run()
					stop()
				}
			}))
		}
	})},
	{"election.Election.Leader", terms.about(campaign, func(e *election.Election, ctx context.Context, node string) error {
		l, err := e.Leader(ctx)
		return leads(node, l, err)
	})},
	{"election.Election.Observe", terms.about(campaign, func(e *election.Election, ctx context.Context, node string) error {
		for l, err := range e.Observe(ctx) {
			return leads(node, l, err)
		}
		return ctx.Err()
	})},
	{"election.Election.Observe until a resignation", changed(behind(campaigning, campaigning), func(s *Stage, v *Verb) {
		v.Call = call(func(ctx context.Context) error {
			return first(terms.make(s).Observe(ctx), election.Leader.Vacant)
		})
		v.Own = ""
	})},
	{"election.Election.Candidates", listing(terms, campaign, (*election.Election).Candidates)},
	{"election.Election.Break", terms.breaking(campaign, (*election.Election).Break)},
	{"election.Term.Proclaim", seen((*Stage).Versions, "lock-",
		terms.using(campaign, func(t *election.Term, ctx context.Context) error { return t.Proclaim(ctx, []byte("new")) }))},
	{"election.Term.Multi", terms.fencing(campaign, (*election.Term).Multi)},
	{"election.Term.Resign", terms.returning(campaign, (*election.Term).Resign)},
	{"election.Term.ResignTo", func(s *Stage) Verb {
		theirs, done := terms.make(s.other()), make(chan struct{})
		close(done)
		var next string
		v := terms.using(campaign, func(t *election.Term, ctx context.Context) error { return t.ResignTo(ctx, next) })(s)
		v.Effect = func() int { return -len(s.Own("lock-")) }
		lead := v.Before
		v.Before = func() { // the other client comes second, and resigns as soon as it leads
			<-done
			lead()
			done = make(chan struct{})
			go func() {
				defer close(done)
				if t, err := theirs.Campaign(s.ctx, nil); err == nil {
					t.Resign(s.ctx)
				}
			}()
			s.await("lock-", 2)
			all := must(theirs.Candidates(s.ctx))
			next = all[len(all)-1].Node
		}
		return v
	}},
}
