package laws

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A sessionVerb is called with the path of the stage.
type sessionVerb func(ctx context.Context, s *recipe.Session, path string) error

// inSession is a verb of a session, about the node at the stage's path, which the other client has
// made.
func inSession(verb sessionVerb) func(*Stage) Verb {
	return func(s *Stage) Verb {
		return Verb{
			Loose:  true,
			Before: func() { must(must(recipe.SessionOf(s.ctx, s.Other())).EnsurePath(s.ctx, s.Path)) },
			Call: call(func(ctx context.Context) error {
				session, err := recipe.SessionOf(ctx, s.Client)
				if err != nil {
					return err
				}
				return verb(ctx, session, s.Path)
			}),
		}
	}
}

// creating is inSession for a verb that creates nodes below the path. The other client deletes them
// before each call.
func creating(nodes string, verb sessionVerb) func(*Stage) Verb {
	return func(s *Stage) Verb {
		v := inSession(verb)(s)
		v.Effect = func() int { return s.Count(nodes) }
		ensure := v.Before
		v.Before = func() {
			ensure()
			s.remove("^/.")
		}
		return v
	}
}

// waiting is inSession for a verb that waits until the other client has set the node's data,
// created a child, and deleted both.
func waiting(verb sessionVerb) func(*Stage) Verb {
	return func(s *Stage) Verb {
		v := creating("", verb)(s)
		ensure := v.Before
		v.Before = func() { ensure(); time.Sleep(time.Second) } // until each server knows the node
		v.Beside = func(ctx context.Context) {
			other := must(recipe.SessionOf(s.ctx, s.Other()))
			for ctx.Err() == nil { // the servers may be away
				if _, err := other.Set(ctx, s.Path, nil, -1); !errors.Is(err, zk.ErrNoServer) && !errors.Is(err, protocol.ErrLost) {
					break
				}
				other = must(recipe.SessionOf(s.ctx, s.Other()))
			}
			other.Create(ctx, s.Path+"/child", nil, 0)
			time.Sleep(time.Second)
			s.remove("")
		}
		v.Effect = nil
		return v
	}
}

// remove has the other client delete the nodes that match, from below.
func (s *Stage) remove(pattern string) {
	other := must(recipe.SessionOf(s.ctx, s.Other()))
	for _, n := range slices.Backward(s.tree()) {
		if regexp.MustCompile(pattern).MatchString(n.path) {
			other.Delete(s.ctx, s.Path+n.path, -1)
		}
	}
}

// watching is waiting for a verb of a watch.
func watching(children bool, verb func(ctx context.Context, s *recipe.Session, w *recipe.Watch) error) func(*Stage) Verb {
	return waiting(func(ctx context.Context, s *recipe.Session, path string) error {
		watch := s.Watch
		if children {
			watch = s.WatchChildren
		}
		w := watch(path)
		if _, err := w.Ready(ctx); err != nil {
			return err
		}
		return verb(ctx, s, w)
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

// replacing is Replace by a node that is created in the transaction that deletes the other one.
func replacing(s *Stage) Verb {
	r := grants.make(s)
	v := grants.using(grant, nil)(s)
	var g *recipe.Grant
	v.Before = func() { g = must(grant(r, s.ctx)) }
	v.Call = func(ctx context.Context) (*Held, error) {
		from := r.Path() + "/" + g.Node()
		to := from + "-node-next"
		next, err := g.Replace(ctx, r, to, func(ctx context.Context, s *recipe.Session) error {
			_, err := recipe.DoOnce(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) {
				return recipe.Multi(c,
					&zk.CreateRequest{Path: s.Path(to), Acl: s.ACL(to), Flags: zk.FlagEphemeral},
					&zk.DeleteRequest{Path: s.Path(from), Version: -1})
			}, func(ctx context.Context) ([]zk.MultiResponse, bool, error) {
				stat, err := s.Exists(ctx, to)
				return nil, stat != nil, err
			})
			return err
		})
		if err != nil {
			return &Held{nil, g.Release}, err
		}
		return &Held{next, next.Release}, nil
	}
	v.Effect = func() int { return len(s.Own("-node-next")) }
	return v
}

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
				s.Link.Cut()
				s.Link.Heal()
				<-old.Done()
			},
			Call: call(func(ctx context.Context) error { _, err := s.Client.Session(ctx); return err }),
		}
	}},
	{"recipe.SessionOf", inSession(func(context.Context, *recipe.Session, string) error { return nil })},
	{"recipe.Recipe.Session", func(s *Stage) Verb {
		return Verb{Call: call(func(ctx context.Context) error { _, err := grants.make(s).Session(ctx); return err })}
	}},
	{"recipe.Session.Get", inSession(func(ctx context.Context, s *recipe.Session, path string) error {
		_, _, err := s.Get(ctx, path)
		return err
	})},
	{"recipe.Session.Exists", inSession(func(ctx context.Context, s *recipe.Session, path string) error {
		_, err := s.Exists(ctx, path)
		return err
	})},
	{"recipe.Session.Children", inSession(func(ctx context.Context, s *recipe.Session, path string) error {
		_, _, err := s.Children(ctx, path)
		return err
	})},
	{"recipe.Session.Sync", inSession(func(ctx context.Context, s *recipe.Session, path string) error {
		return s.Sync(ctx, path)
	})},
	{"recipe.Session.Confirm", func(s *Stage) Verb {
		v := inSession(func(ctx context.Context, s *recipe.Session, _ string) error { _, err := s.Confirm(ctx); return err })(s)
		ensure := v.Before
		v.Before = func() { ensure(); time.Sleep(quiet) } // it was confirmed lately otherwise
		return v
	}},
	{"recipe.Session.Fence", inSession(func(ctx context.Context, s *recipe.Session, _ string) error { return s.Fence(ctx) })},
	{"recipe.Session.Create", creating("/x$", func(ctx context.Context, s *recipe.Session, path string) error {
		return s.Create(ctx, path+"/x", nil, 0)
	})},
	{"recipe.Session.Set", func(s *Stage) Verb {
		v := inSession(func(ctx context.Context, s *recipe.Session, path string) error {
			_, err := s.Set(ctx, path, []byte("x"), -1)
			return err
		})(s)
		v.Again, v.Effect = true, func() int { return s.Versions("^$") }
		return v
	}},
	{"recipe.Session.Delete", func(s *Stage) Verb {
		v := inSession(func(ctx context.Context, s *recipe.Session, path string) error { return s.Delete(ctx, path, -1) })(s)
		v.Effect = func() int { return -s.Count("^$") }
		return v
	}},
	{"recipe.Session.DeleteWith", func(s *Stage) Verb {
		v := inSession(func(ctx context.Context, s *recipe.Session, path string) error {
			return s.DeleteWith(ctx, path, func(c *zk.Conn) error {
				_, err := recipe.Multi(c, &zk.CheckVersionRequest{Path: s.Path(path), Version: -1},
					&zk.DeleteRequest{Path: s.Path(path), Version: -1})
				return err
			})
		})(s)
		v.Effect = func() int { return -s.Count("^$") }
		return v
	}},
	{"recipe.Session.Multi", creating("/b$", func(ctx context.Context, s *recipe.Session, path string) error {
		_, err := s.Multi(ctx, &zk.CreateRequest{Path: path + "/a"}, &zk.CreateRequest{Path: path + "/a/b"})
		return err
	})},
	{"recipe.Session.MultiOnce", creating("/b$", func(ctx context.Context, s *recipe.Session, path string) error {
		_, err := s.MultiOnce(ctx, s.Receipt(path), false, &zk.CreateRequest{Path: path + "/a"}, &zk.CreateRequest{Path: path + "/a/b"})
		return err
	})},
	{"recipe.Session.EnsurePath", func(s *Stage) Verb {
		v := inSession(func(ctx context.Context, s *recipe.Session, path string) error {
			_, err := s.EnsurePath(ctx, path+"/x/y")
			return err
		})(s)
		v.Before = nil
		return v
	}},
	{"recipe.Session.WaitNode", waiting(func(ctx context.Context, s *recipe.Session, path string) error {
		_, err := s.WaitNode(ctx, path, func(stat *zk.Stat) bool { return false })
		return err
	})},
	{"recipe.Session.WaitChildren", waiting(func(ctx context.Context, s *recipe.Session, path string) error {
		return s.WaitChildren(ctx, path, func(children []string) bool { return len(children) > 0 })
	})},
	{"recipe.Session.WaitAny", watching(false, func(ctx context.Context, s *recipe.Session, w *recipe.Watch) error {
		return s.WaitAny(ctx, w)
	})},
	{"recipe.Watch.Ready", watching(false, func(context.Context, *recipe.Session, *recipe.Watch) error { return nil })},
	{"recipe.Watch.Wait", watching(false, func(ctx context.Context, _ *recipe.Session, w *recipe.Watch) error { return w.Wait(ctx) })},
	{"recipe.Watch.Wait for children", watching(true, func(ctx context.Context, _ *recipe.Session, w *recipe.Watch) error { return w.Wait(ctx) })},
	{"recipe.Watch.Current", watching(false, func(ctx context.Context, _ *recipe.Session, w *recipe.Watch) error {
		_, err := w.Current(ctx)
		return err
	})},
	{"recipe.Watch.Recheck", watching(true, func(ctx context.Context, _ *recipe.Session, w *recipe.Watch) error {
		_, err := w.Recheck(ctx)
		return err
	})},
	{"recipe.Do", inSession(func(ctx context.Context, s *recipe.Session, path string) error {
		_, err := recipe.Do(ctx, s, func(c *zk.Conn) (*zk.Stat, error) { _, stat, err := c.Exists(s.Path(path)); return stat, err })
		return err
	})},
	{"recipe.DoOnce", creating("/x$", func(ctx context.Context, s *recipe.Session, path string) error {
		op, settle := creation(s, path+"/x")
		_, err := recipe.DoOnce(ctx, s, op, settle)
		return err
	})},
	{"recipe.Detach", creating("/x$", func(ctx context.Context, s *recipe.Session, path string) error {
		_, err := recipe.Detach(ctx, s, func(ctx context.Context, s *recipe.Session) (string, error) {
			op, settle := creation(s, path+"/x")
			return recipe.DoOnce(ctx, s, op, settle)
		}, nil)
		return err
	})},
	{"recipe.AcrossSessions", func(s *Stage) Verb {
		v := creating("/x$", nil)(s)
		v.Call = call(func(ctx context.Context) error {
			_, err := recipe.AcrossSessions(ctx, grants.make(s), func(session *recipe.Session) (string, error) {
				op, settle := creation(session, s.Path+"/x")
				return recipe.DoOnce(ctx, session, op, settle)
			})
			return err
		})
		return v
	}},
	{"recipe.Session.CreateOwn", func(s *Stage) Verb {
		v := inSession(nil)(s)
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
		return v
	}},
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
			_, err := g.ReleaseWith(ctx, func(ctx context.Context, s *recipe.Session) error {
				return s.DeleteWith(ctx, stage.Path+"/"+g.Node(), func(c *zk.Conn) error { return c.Delete(g.Check().Path, -1) })
			})
			return err
		})(stage)
	}},
	{"recipe.Grant.Replace", replacing},
	{"recipe.Grant.SetData", func(s *Stage) Verb {
		v := grants.using(grant, func(g *recipe.Grant, ctx context.Context) error { return g.SetData(ctx, []byte("new")) })(s)
		v.Effect = func() int { return s.Versions("-node-") }
		return v
	}},
	{"recipe.Grant.Multi", grants.fencing(grant, (*recipe.Grant).Multi)},
	{"recipe.MultiHeld", grants.fencing(grant, func(g *recipe.Grant, ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
		return recipe.MultiHeld(ctx, []*recipe.Grant{g}, ops...)
	})},
	{"recipe.Grant.Verify", grants.using(grant, (*recipe.Grant).Verify)},
}
