package laws

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A here is a session, with the ctx of a call and the path that it is about.
type here struct {
	*recipe.Session
	ctx  context.Context
	path string
}

// inSession is a verb of a session about the node at the stage's path. The other client has made
// the node.
func inSession(verb func(here) error) func(*Stage) Verb {
	return func(s *Stage) Verb {
		return Verb{
			Loose:  true,
			Before: func() { must(s.operator().EnsurePath(s.ctx, s.Path)) },
			Call: call(func(ctx context.Context) error {
				session, err := recipe.SessionOf(ctx, s.Client)
				if err != nil {
					return err
				}
				return verb(here{session, ctx, s.Path})
			}),
		}
	}
}

// creating is inSession for a verb that creates nodes below the path. The other client deletes them
// before each call. The path is no container: a real server would remove it as soon as it is empty.
func creating(nodes string, verb func(here) error) func(*Stage) Verb {
	return seen((*Stage).Count, nodes, changed(inSession(verb), func(s *Stage, v *Verb) {
		v.Before = func() { setValue(s, ""); s.remove("^/.") }
	}))
}

// waiting is inSession for a verb that waits until the other client has set the node's data,
// created a child, and deleted both.
func waiting(verb func(here) error) func(*Stage) Verb {
	return changed(creating("", verb), func(s *Stage, v *Verb) {
		ensure := v.Before
		v.Before = func() { ensure(); time.Sleep(time.Second) } // until each server knows the node
		v.Beside = func(ctx context.Context) {
			other := s.operator()
			for ctx.Err() == nil { // the servers may be away
				if _, err := other.Set(ctx, s.Path, nil, -1); !errors.Is(err, zk.ErrNoServer) && !errors.Is(err, protocol.ErrLost) {
					break
				}
				other = s.operator()
			}
			other.Create(ctx, s.Path+"/child", nil, 0)
			time.Sleep(time.Second)
			s.remove("")
		}
		v.Effect = nil
	})
}

// remove has the other client delete the nodes that match, from below.
func (s *Stage) remove(pattern string) {
	other := s.operator()
	for _, n := range slices.Backward(s.matching(pattern)) {
		other.Delete(s.ctx, s.Path+n.path, -1)
	}
}

// watching is waiting for a verb of a watch.
func watching(children bool, verb func(*recipe.Watch, context.Context) error) func(*Stage) Verb {
	return waiting(func(s here) error {
		watch := s.Watch
		if children {
			watch = s.WatchChildren
		}
		w := watch(s.path)
		if _, err := w.Ready(s.ctx); err != nil {
			return err
		}
		return verb(w, s.ctx)
	})
}

// creation returns an op that creates a node, and what settles whether it has.
func creation(s *recipe.Session, path string) (op func(*zk.Conn) (string, error), settle func(context.Context) (string, bool, error)) {
	return func(c *zk.Conn) (string, error) {
			return recipe.Create(c, s.Path(path), nil, 0, s.ACL(path))
		}, func(ctx context.Context) (string, bool, error) {
			stat, err := s.Exists(ctx, path)
			return path, stat != nil, err
		}
}

var grants = kind[*recipe.Recipe, *recipe.Grant]{
	own:  "-node-",
	make: func(s *Stage) *recipe.Recipe { return recipe.New(s.Client, "law", s.Path) },
	back: (*recipe.Grant).Release,
}

func ownNode(r *recipe.Recipe, s *recipe.Session) recipe.OwnNode {
	return recipe.OwnNode{Dir: r.Path(), Prefix: s.NewOwner().String() + "-node-"}
}

// granting makes a node and a grant of it.
func granting(grant func(*recipe.Recipe, context.Context, *recipe.Session, string, int64, func(context.Context, *recipe.Session) error) (*recipe.Grant, error)) func(*recipe.Recipe, context.Context) (*recipe.Grant, error) {
	return func(r *recipe.Recipe, ctx context.Context) (*recipe.Grant, error) {
		return r.Acquire(ctx, nil, func(s *recipe.Session) (*recipe.Grant, error) {
			own, err := s.CreateOwn(ctx, ownNode(r, s))
			if err != nil {
				return nil, err
			}
			stat, err := own.Watch().Ready(ctx)
			if err != nil {
				own.Withdraw(ctx)
				return nil, err
			}
			path := r.Path() + "/" + own.Name()
			g, err := grant(r, ctx, s, path, stat.Czxid, func(ctx context.Context, s *recipe.Session) error {
				return s.Delete(ctx, path, -1)
			})
			if err != nil {
				own.Withdraw(ctx)
			}
			return g, err
		})
	}
}

var grant = granting((*recipe.Recipe).NewGrant)

var protocolRows = []Row{
	{"protocol.Connect", func(s *Stage) Verb {
		return Verb{Call: func(ctx context.Context) (*Held, error) {
			c, err := protocol.Connect(ctx, s.Server.ConnectString(), protocol.WithDialer(s.Link.Dial), protocol.WithSessionTimeout(timeout))
			if err != nil {
				return nil, err
			}
			return &Held{nil, func(context.Context) error { return c.Close() }}, nil
		}}
	}},
	{"protocol.Client.Session after a loss", func(s *Stage) Verb {
		return Verb{
			Before: func() {
				old := must(s.Client.Session(s.ctx))
				s.Server.ExpireSession(old.ID())
				cut(s, nil)
				<-old.Done()
			},
			Call: call(func(ctx context.Context) error { return only(s.Client.Session(ctx)) }),
		}
	}},
	{"recipe.SessionOf", inSession(func(here) error { return nil })},
	{"recipe.Recipe.Session", func(s *Stage) Verb {
		return Verb{Call: call(func(ctx context.Context) error { return only(grants.make(s).Session(ctx)) })}
	}},
	{"recipe.Session.Get", inSession(func(s here) error {
		_, _, err := s.Get(s.ctx, s.path)
		return err
	})},
	{"recipe.Session.Exists", inSession(func(s here) error { return only(s.Exists(s.ctx, s.path)) })},
	{"recipe.Session.Children", inSession(func(s here) error {
		_, _, err := s.Children(s.ctx, s.path)
		return err
	})},
	{"recipe.Session.Sync", inSession(func(s here) error { return s.Sync(s.ctx, s.path) })},
	{"recipe.Session.Confirm", changed(inSession(func(s here) error {
		return only(s.Confirm(s.ctx))
	}), func(_ *Stage, v *Verb) {
		ensure := v.Before
		v.Before = func() { ensure(); time.Sleep(quiet) } // it was confirmed lately otherwise
	})},
	{"recipe.Session.Fence", inSession(func(s here) error { return s.Fence(s.ctx) })},
	{"recipe.Session.Create", creating("/x$", func(s here) error { return s.Create(s.ctx, s.path+"/x", nil, 0) })},
	{"recipe.Session.Set", seen((*Stage).Versions, "^$", changed(inSession(func(s here) error {
		return only(s.Set(s.ctx, s.path, []byte("x"), -1))
	}), func(_ *Stage, v *Verb) { v.Again = true }))},
	{"recipe.Session.Delete", seen((*Stage).fewer, "^$", inSession(func(s here) error {
		return s.Delete(s.ctx, s.path, -1)
	}))},
	{"recipe.Session.DeleteOnce", seen((*Stage).fewer, "^$", func(s *Stage) Verb {
		var czxid int64
		v := inSession(func(s here) error { return s.DeleteOnce(s.ctx, s.path, czxid) })(s)
		ensure := v.Before
		v.Before = func() { ensure(); czxid = must(s.operator().Exists(s.ctx, s.Path)).Czxid }
		return v
	})},
	{"recipe.Session.DeleteWith", seen((*Stage).fewer, "^$", inSession(func(s here) error {
		return s.DeleteWith(s.ctx, s.path, func(c *zk.Conn) error {
			return only(recipe.Multi(c, &zk.CheckVersionRequest{Path: s.Path(s.path), Version: -1},
				&zk.DeleteRequest{Path: s.Path(s.path), Version: -1}))
		})
	}))},
	{"recipe.Session.Multi", creating("/b$", func(s here) error {
		return only(s.Multi(s.ctx, &zk.CreateRequest{Path: s.path + "/a"}, &zk.CreateRequest{Path: s.path + "/a/b"}))
	})},
	{"recipe.Session.MultiOnce", creating("/b$", func(s here) error {
		return only(s.MultiOnce(s.ctx, s.Receipt(s.path), false, &zk.CreateRequest{Path: s.path + "/a"}, &zk.CreateRequest{Path: s.path + "/a/b"}))
	})},
	{"recipe.Session.EnsurePath", changed(inSession(func(s here) error {
		return only(s.EnsurePath(s.ctx, s.path+"/x/y"))
	}), func(_ *Stage, v *Verb) { v.Before = nil })},
	{"recipe.Session.WaitNode", waiting(func(s here) error {
		return only(s.WaitNode(s.ctx, s.path, func(stat *zk.Stat) bool { return false }))
	})},
	{"recipe.Session.WaitChildren", waiting(func(s here) error {
		return s.WaitChildren(s.ctx, s.path, func(children []string) bool { return len(children) > 0 })
	})},
	{"recipe.Session.WaitAny", waiting(func(s here) error {
		w := s.Watch(s.path)
		if _, err := w.Ready(s.ctx); err != nil {
			return err
		}
		return s.WaitAny(s.ctx, w)
	})},
	{"recipe.Watch.Ready", watching(false, func(*recipe.Watch, context.Context) error { return nil })},
	{"recipe.Watch.Wait", watching(false, (*recipe.Watch).Wait)},
	{"recipe.Watch.Wait for children", watching(true, (*recipe.Watch).Wait)},
	{"recipe.Watch.Current", watching(false, func(w *recipe.Watch, ctx context.Context) error { return only(w.Current(ctx)) })},
	{"recipe.Watch.Fresh", watching(false, func(w *recipe.Watch, ctx context.Context) error { return only(w.Fresh(ctx)) })},
	{"recipe.Watch.Recheck", watching(true, func(w *recipe.Watch, ctx context.Context) error { return only(w.Recheck(ctx)) })},
	{"recipe.Do", inSession(func(s here) error {
		return only(recipe.Do(s.ctx, s.Session, func(c *zk.Conn) (*zk.Stat, error) { _, stat, err := c.Exists(s.Path(s.path)); return stat, err }))
	})},
	{"recipe.DoOnce", creating("/x$", func(s here) error {
		op, settle := creation(s.Session, s.path+"/x")
		return only(recipe.DoOnce(s.ctx, s.Session, op, settle))
	})},
	{"recipe.Detach", creating("/x$", func(s here) error {
		return only(recipe.Detach(s.ctx, s.Session, func(ctx context.Context, session *recipe.Session) (string, error) {
			op, settle := creation(session, s.path+"/x")
			return recipe.DoOnce(ctx, session, op, settle)
		}, nil))
	})},
	{"recipe.AcrossSessions", changed(creating("/x$", nil), func(s *Stage, v *Verb) {
		v.Call = call(func(ctx context.Context) error {
			return only(recipe.AcrossSessions(ctx, grants.make(s), func(session *recipe.Session) (string, error) {
				op, settle := creation(session, s.Path+"/x")
				return recipe.DoOnce(ctx, session, op, settle)
			}))
		})
	})},
	{"recipe.Session.CreateOwn", changed(inSession(nil), func(s *Stage, v *Verb) {
		v.Call = func(ctx context.Context) (*Held, error) {
			session, err := recipe.SessionOf(ctx, s.Client)
			if err != nil {
				return nil, err
			}
			own, err := session.CreateOwn(ctx, ownNode(grants.make(s), session))
			if err != nil {
				return nil, err
			}
			return &Held{nil, own.Withdraw}, nil
		}
		v.Effect, v.Loose = func() int { return len(s.Own("-node-")) }, false
	})},
	{"recipe.Own.Withdraw", func(s *Stage) Verb {
		var own *recipe.Own
		return Verb{
			Before: func() {
				session := must(recipe.SessionOf(s.ctx, s.Client))
				own = must(session.CreateOwn(s.ctx, ownNode(grants.make(s), session)))
			},
			Call:   call(func(ctx context.Context) error { return own.Withdraw(ctx) }),
			Effect: func() int { return -len(s.Own("-node-")) },
			Loose:  true,
		}
	}},
	{"recipe.Recipe.Acquire", grants.acquiring(grant)},
	{"recipe.Recipe.NewGrant", grants.acquiring(grant)},
	{"recipe.Recipe.NewNamedGrant", grants.acquiring(granting((*recipe.Recipe).NewNamedGrant))},
	{"recipe.RunHeld", running(func(s *Stage) func(context.Context, func()) error {
		r := grants.make(s)
		return func(ctx context.Context, run func()) error {
			g, err := grant(r, ctx)
			if err != nil {
				return err
			}
			return recipe.RunHeld(ctx, g, func(context.Context) error { run(); return nil })
		}
	})},
	{"recipe.Grant.Release", grants.returning(grant, (*recipe.Grant).Release)},
	{"recipe.Grant.ReleaseWith", func(stage *Stage) Verb {
		return grants.returning(grant, func(g *recipe.Grant, ctx context.Context) error {
			return only(g.ReleaseWith(ctx, func(ctx context.Context, s *recipe.Session) error {
				return s.DeleteWith(ctx, stage.Path+"/"+g.Node(), func(c *zk.Conn) error { return c.Delete(g.Check().Path, -1) })
			}))
		})(stage)
	}},
	{"recipe.Grant.SetData", seen((*Stage).Versions, "-node-",
		grants.using(grant, func(g *recipe.Grant, ctx context.Context) error { return g.SetData(ctx, []byte("new")) }))},
	{"recipe.Grant.Multi", grants.fencing(grant, (*recipe.Grant).Multi)},
	{"recipe.MultiHeld", grants.fencing(grant, func(g *recipe.Grant, ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
		return recipe.MultiHeld(ctx, []*recipe.Grant{g}, ops...)
	})},
	{"recipe.Grant.Verify", grants.using(grant, (*recipe.Grant).Verify)},
}
