package laws

import (
	"context"
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/group"
)

// member is a Held that joins again when its session is lost.
func member(m *group.Member, err error) (*Held, error) {
	if err != nil {
		return nil, err
	}
	return &Held{nil, m.Leave}, nil
}

// joins is a verb by which the client joins.
func joins(join func(*group.Group, context.Context, string, []byte) (*group.Member, error), opts ...group.Option) func(*Stage) Verb {
	return func(s *Stage) Verb {
		g := group.New(s.Client, s.Path, opts...)
		return Verb{
			Call: func(ctx context.Context) (*Held, error) { return member(join(g, ctx, "me", []byte("x"))) },
			Own:  "/me$",
		}
	}
}

// joined is a verb of a member that has joined before the call.
func joined(verb func(*group.Member, context.Context) error) func(*Stage) Verb {
	return func(s *Stage) Verb {
		var m *group.Member
		return Verb{
			Loose:  true,
			Before: func() { m = must(group.New(s.Client, s.Path).Join(s.ctx, "me", nil)) },
			Call:   func(ctx context.Context) (*Held, error) { return &Held{nil, m.Leave}, verb(m, ctx) },
		}
	}
}

// works is a verb of a member that works at an item, and ends with that.
func works(share func(m *group.Member, ctx context.Context, work func(context.Context, *group.Assignment) error) error) func(*Stage) Verb {
	return func(s *Stage) Verb {
		runs := 0
		v := joined(func(m *group.Member, ctx context.Context) error {
			return worked(ctx, share(m, ctx, func(context.Context, *group.Assignment) error { runs++; return errEnough }))
		})(s)
		v.Effect = func() int { return runs }
		return v
	}
}

// joining is a verb of a group that the other client joins (before the call, or while it waits).
// Its data are others each time.
func joining(wait bool, verb func(ctx context.Context, g *group.Group, data string) error) func(*Stage) Verb {
	return func(s *Stage) Verb {
		g, theirs := group.New(s.Client, s.Path), group.New(s.Other(), s.Path)
		var m *group.Member
		leave := func() {
			if m != nil {
				m.Leave(context.Background())
			}
		}
		s.Cleanup(leave)
		n := 0
		data := func() string { return fmt.Sprint(n) }
		join := func() { m = must(theirs.Join(s.ctx, "other", []byte(data()))) }
		v := Verb{Call: call(func(ctx context.Context) error { return verb(ctx, g, data()) })}
		if wait {
			v.Before, v.Beside = func() { leave(); n++ }, func(context.Context) { join() }
		} else {
			v.Before = func() { leave(); n++; join() }
		}
		return v
	}
}

// current returns an error if a member has other data than the latest.
func current(all []group.Peer, data string, err error) error {
	for _, p := range all {
		if err == nil && p.Data != nil && string(p.Data) != data { // nil: it may not be read
			err = errors.New("an earlier member")
		}
	}
	return err
}

// items are those of a member that is alone.
var items = kind[*group.Group, *job]{
	own:  "-items/item/",
	make: func(s *Stage) *group.Group { return group.New(s.Client, s.Path) },
	back: (*job).end,
}

func assign(g *group.Group, ctx context.Context) (*job, error) {
	m, err := g.Join(ctx, "me", nil)
	if err != nil {
		return nil, err
	}
	return begin(func(work func(context.Context, *group.Assignment) error) error {
		defer m.Leave(ctx)
		return m.Share(ctx, []string{"item"}, work)
	})
}

var groupRows = []Row{
	{"group.Group.Join", joins((*group.Group).Join)},
	{"group.Group.TryJoin", joins((*group.Group).TryJoin)},
	{"group.Group.Join with an identity", joins((*group.Group).Join, group.WithIdentity("id"))},
	{"group.Group.Join until the name is free", changed(joins((*group.Group).Join), func(s *Stage, v *Verb) {
		other := group.New(s.Other(), s.Path)
		var theirs *group.Member
		v.Before = func() { theirs = must(other.Join(s.ctx, "me", nil)) }
		v.Beside = func(context.Context) { theirs.Leave(context.Background()) }
	})},
	{"group.Group.TryJoin name taken", changed(joining(false, nil), func(s *Stage, v *Verb) {
		g := group.New(s.Client, s.Path)
		v.Call = func(ctx context.Context) (*Held, error) {
			h, err := member(g.TryJoin(ctx, "other", nil))
			if errors.Is(err, group.ErrNameTaken) {
				err = nil
			}
			return h, err
		}
	})},
	{"group.Group.Members", joining(false, func(ctx context.Context, g *group.Group, data string) error {
		all, err := g.Members(ctx)
		return found(1, len(all), current(all, data, err))
	})},
	{"group.Group.Watch", joining(false, func(ctx context.Context, g *group.Group, data string) error {
		for all, err := range g.Watch(ctx) {
			return current(all, data, err)
		}
		return ctx.Err()
	})},
	{"group.Group.Watch until one joins", joining(true, func(ctx context.Context, g *group.Group, _ string) error {
		return first(g.Watch(ctx), func(all []group.Peer) bool { return len(all) > 0 })
	})},
	{"group.Group.WatchData until one sets", func(s *Stage) Verb {
		g, theirs := group.New(s.Client, s.Path), group.New(s.Other(), s.Path)
		var m *group.Member
		n := 0
		return Verb{
			Before: func() {
				if n++; m == nil {
					m = must(theirs.Join(s.ctx, "other", nil))
					s.Cleanup(func() { m.Leave(context.Background()) })
				}
			},
			Beside: func(ctx context.Context) { m.Set(ctx, fmt.Append(nil, n)) },
			Call: call(func(ctx context.Context) error {
				return first(g.WatchData(ctx), func(all []group.Peer) bool { return len(all) > 0 && string(all[0].Data) == fmt.Sprint(n) })
			}),
		}
	}},
	{"group.Group.Await", joining(true, func(ctx context.Context, g *group.Group, data string) error {
		all, err := g.Await(ctx, 1)
		return current(all, data, err)
	})},
	{"group.Member.Set", seen((*Stage).Versions, "/me$",
		joined(func(m *group.Member, ctx context.Context) error { return m.Set(ctx, []byte("new")) }))},
	{"group.Member.Leave", seen((*Stage).fewer, "/me$", joined((*group.Member).Leave))},
	{"group.Member.Share", works(func(m *group.Member, ctx context.Context, work func(context.Context, *group.Assignment) error) error {
		return m.Share(ctx, []string{"item"}, work)
	})},
	{"group.Assignment.Multi", items.fencing(assign, (*job).Multi)},
	{"group.Member.ShareAll", works(func(m *group.Member, ctx context.Context, work func(context.Context, *group.Assignment) error) error {
		sets := make(chan []string, 1)
		sets <- []string{"item"}
		return m.ShareAll(ctx, sets, work)
	})},
}
