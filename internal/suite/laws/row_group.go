package laws

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/group"
)

// member is a Held that joins again when its session is lost.
func member(m *group.Member, err error) (*Held, error) {
	if err != nil {
		return nil, err
	}
	return &Held{nil, m.Leave}, nil
}

// joined has the client join before the call.
func joined(s *Stage, verb func(context.Context, *group.Member) error) Verb {
	var m *group.Member
	return Verb{
		Loose:  true,
		Before: func() { m = must(group.New(s.Client, s.Path).Join(s.ctx, "me", nil)) },
		Call:   func(ctx context.Context) (*Held, error) { return &Held{nil, m.Leave}, verb(ctx, m) },
	}
}

// joining has the other client join before the call, or while it waits, with other data each time.
func joining(s *Stage, wait bool, verb func(ctx context.Context, g *group.Group, data string) error) Verb {
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

// current returns an error if a member has other data than the latest.
func current(all []group.Peer, data string, err error) error {
	for _, p := range all {
		if err == nil && p.Data != nil && string(p.Data) != data { // nil: it may not be read
			err = errors.New("an earlier member")
		}
	}
	return err
}

// An assigned item is worked at until it is given back.
type assigned struct {
	*group.Assignment
	member *group.Member
	stop   func()
	ended  chan struct{}
}

// items are those of a member that is alone.
var items = kind[*group.Group, *assigned]{
	own:  "-items/item/",
	make: func(s *Stage) *group.Group { return group.New(s.Client, s.Path) },
	back: func(a *assigned, ctx context.Context) error { a.stop(); <-a.ended; return a.member.Leave(ctx) },
}

func assign(g *group.Group, ctx context.Context) (*assigned, error) {
	m, err := g.Join(ctx, "me", nil)
	if err != nil {
		return nil, err
	}
	begun, stop := make(chan struct{}), make(chan struct{})
	a := &assigned{member: m, stop: sync.OnceFunc(func() { close(stop) }), ended: make(chan struct{})}
	go func() {
		defer close(a.ended)
		m.Share(context.Background(), []string{"item"}, func(held context.Context, item *group.Assignment) error {
			if a.Assignment == nil {
				a.Assignment = item
				close(begun)
			}
			select {
			case <-stop:
				return errEnough
			case <-held.Done():
				return nil
			}
		})
	}()
	select {
	case <-begun:
		return a, nil
	case <-ctx.Done():
		a.stop()
		m.Leave(context.Background())
		return nil, ctx.Err()
	}
}

// worked says whether a Share has ended because its work did, or ctx.
func worked(ctx context.Context, err error) error {
	if err == nil {
		return ctx.Err()
	}
	return enough(err)
}

var groupRows = []Row{
	{"group.Group.Join", func(s *Stage) Verb {
		g := group.New(s.Client, s.Path)
		return Verb{
			Call: func(ctx context.Context) (*Held, error) { return member(g.Join(ctx, "me", []byte("x"))) },
			Own:  "/me$",
		}
	}},
	{"group.Group.TryJoin", func(s *Stage) Verb {
		g := group.New(s.Client, s.Path)
		return Verb{
			Call: func(ctx context.Context) (*Held, error) { return member(g.TryJoin(ctx, "me", []byte("x"))) },
			Own:  "/me$",
		}
	}},
	{"group.Group.Join with an identity", func(s *Stage) Verb {
		g := group.New(s.Client, s.Path, group.WithIdentity("id"))
		return Verb{
			Call: func(ctx context.Context) (*Held, error) { return member(g.Join(ctx, "me", []byte("x"))) },
			Own:  "/me$",
		}
	}},
	{"group.Group.Join until the name is free", func(s *Stage) Verb {
		v, g := joining(s, false, nil), group.New(s.Client, s.Path)
		var theirs *group.Member
		v.Before = func() { theirs = must(group.New(s.Other(), s.Path).Join(s.ctx, "me", nil)) }
		v.Beside = func(context.Context) { theirs.Leave(context.Background()) }
		v.Call = func(ctx context.Context) (*Held, error) { return member(g.Join(ctx, "me", nil)) }
		v.Own = "/me$"
		return v
	}},
	{"group.Group.TryJoin name taken", func(s *Stage) Verb {
		v, g := joining(s, false, nil), group.New(s.Client, s.Path)
		v.Call = func(ctx context.Context) (*Held, error) {
			h, err := member(g.TryJoin(ctx, "other", nil))
			if errors.Is(err, group.ErrNameTaken) {
				err = nil
			}
			return h, err
		}
		return v
	}},
	{"group.Group.Members", func(s *Stage) Verb {
		return joining(s, false, func(ctx context.Context, g *group.Group, data string) error {
			all, err := g.Members(ctx)
			return found(1, len(all), current(all, data, err))
		})
	}},
	{"group.Group.Watch", func(s *Stage) Verb {
		return joining(s, false, func(ctx context.Context, g *group.Group, data string) error {
			for all, err := range g.Watch(ctx) {
				return current(all, data, err)
			}
			return ctx.Err()
		})
	}},
	{"group.Group.Watch until one joins", func(s *Stage) Verb {
		return joining(s, true, func(ctx context.Context, g *group.Group, _ string) error {
			return first(g.Watch(ctx), func(all []group.Peer) bool { return len(all) > 0 })
		})
	}},
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
	{"group.Group.Await", func(s *Stage) Verb {
		return joining(s, true, func(ctx context.Context, g *group.Group, data string) error {
			all, err := g.Await(ctx, 1)
			return current(all, data, err)
		})
	}},
	{"group.Member.Set", func(s *Stage) Verb {
		v := joined(s, func(ctx context.Context, m *group.Member) error { return m.Set(ctx, []byte("new")) })
		v.Effect = func() int { return s.Versions("/me$") }
		return v
	}},
	{"group.Member.Leave", func(s *Stage) Verb {
		v := joined(s, func(ctx context.Context, m *group.Member) error { return m.Leave(ctx) })
		v.Effect = func() int { return -s.Count("/me$") }
		return v
	}},
	{"group.Member.Share", func(s *Stage) Verb {
		runs := 0
		v := joined(s, func(ctx context.Context, m *group.Member) error {
			return worked(ctx, m.Share(ctx, []string{"item"}, func(context.Context, *group.Assignment) error { runs++; return errEnough }))
		})
		v.Effect = func() int { return runs }
		return v
	}},
	{"group.Assignment.Multi", items.fencing(assign, func(a *assigned, ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
		return a.Multi(ctx, ops...)
	})},
	{"group.Member.ShareAll", func(s *Stage) Verb {
		runs := 0
		v := joined(s, func(ctx context.Context, m *group.Member) error {
			sets := make(chan []string, 1)
			sets <- []string{"item"}
			return worked(ctx, m.ShareAll(ctx, sets, func(context.Context, *group.Assignment) error { runs++; return errEnough }))
		})
		v.Effect = func() int { return runs }
		return v
	}},
}
