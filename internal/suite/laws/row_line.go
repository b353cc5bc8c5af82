package laws

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A contest is a line with the recipe that it is of.
type contest struct {
	*line.Line
	recipe *recipe.Recipe
}

var contests = kind[contest, *recipe.Grant]{
	own: "lock-",
	make: func(s *Stage) contest {
		r := recipe.New(s.Client, "law", s.Path)
		return contest{line.New(r, line.Locks...), r}
	},
	back: (*recipe.Grant).Release,
}

func (c contest) request() line.Request {
	return line.Request{Kind: "lock-", Blockers: line.Exclusive, Recipe: c.recipe}
}

func (c contest) enter(ctx context.Context) (*recipe.Grant, error) {
	return c.Enter(ctx, c.request())
}

// join is Join in whatever session.
func (c contest) join(ctx context.Context) (*recipe.Grant, error) {
	return c.recipe.Acquire(ctx, nil, func(s *recipe.Session) (*recipe.Grant, error) {
		r := c.request()
		return c.Join(ctx, s, &r)
	})
}

// claim is Claim again and again, with Gone in between.
func (c contest) claim(ctx context.Context) (*recipe.Grant, error) {
	return c.recipe.Acquire(ctx, nil, func(s *recipe.Session) (*recipe.Grant, error) {
		for {
			r := c.request()
			g, blocker, err := c.Claim(ctx, s, &r)
			if !errors.Is(err, line.ErrBusy) {
				return g, err
			}
			if blocker == "" {
				continue
			}
			if err := c.Gone(ctx, s, blocker); err != nil {
				return nil, err
			}
		}
	})
}

var lineRows = []Row{
	{"line.Line.Enter", contests.acquiring(contest.enter)},
	{"line.Line.Enter held elsewhere", behind(contests.acquiring(contest.enter), contests.acquiring(contest.enter))},
	{"line.Line.Join held elsewhere", behind(contests.acquiring(contest.join), contests.acquiring(contest.enter))},
	{"line.Line.Claim", contests.acquiring(contest.claim)},
	{"line.Line.Gone", behind(contests.acquiring(contest.claim), contests.acquiring(contest.enter))},
	{"line.Line.Contenders", listing(contests, contest.enter, func(c contest, ctx context.Context) ([]line.Contender, error) { return c.Contenders(ctx) })},
	{"line.Line.Names", listing(contests, contest.enter, func(c contest, ctx context.Context) ([]line.Name, error) {
		return recipe.AcrossSessions(ctx, c.recipe, func(s *recipe.Session) ([]line.Name, error) { return c.Names(ctx, s) })
	})},
	{"line.Line.Break", contests.breaking(contest.enter, func(c contest, ctx context.Context, node string) error { return c.Break(ctx, node) })},
	{"line.Line.UpdateData", rewriting("lock-", contests.about(contest.enter, func(c contest, ctx context.Context, node string) error {
		return c.UpdateData(ctx, node, func(data []byte) ([]byte, error) { return append(data, '+'), nil })
	}))},
	{"line.Release", contests.returning(contest.enter, (*recipe.Grant).Release)},
}
