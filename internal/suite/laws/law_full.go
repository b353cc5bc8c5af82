package laws

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// Full uses up a quota of nodes, or the room of a session for ephemeral nodes, before a call and
// before its result is given back. What needs another node fails with ErrQuotaExceeded or
// ErrSessionFull and leaves nothing, and whatever is there can still be taken away. The servers survive
// the end of a session that is full.
func Full(t *testing.T, p *Player) {
	limits := []struct {
		name string
		in   setting
		fill func(*Stage) (enlarge func())
	}{
		{"full", setting{server: []recipestest.Option{recipestest.WithConfigFunc(func(c *embedded.Config) { c.EnforceQuota = true })}}, (*Stage).fill},
		{"session full", setting{}, (*Stage).fillSession},
	}
	title := "What comes of a call on a path whose quota of nodes is used up, or in a session that has no room."
	p.law(t, law{name: "full", title: title, embedded: true, most: 150, cells: func(sc *scene) {
		for _, l := range limits {
			if !sc.calm.waits() || l.name == "session full" { // else another client is refused, too
				sc.add(l.name+" call", func(t *testing.T) {
					sc.play(t, l.in, func(s *Stage, v Verb) {
						if sc.warm {
							s.warm(v)
						}
						base := must(v.prepare())
						enlarge := l.fill(s)
						o := s.do(v, s.ctx)
						enlarge()
						sc.note(l.name, "before the call", s.judge(v, o, base, *sc.calm))
					})
				})
			}
			if sc.calm.holds && !sc.warm && !sc.calm.waits() && l.name == "session full" {
				sc.add("session full ends", func(t *testing.T) {
					sc.play(t, l.in, func(s *Stage, v Verb) {
						must(v.prepare())
						o := s.do(v, s.ctx)
						check(o.err)
						l.fill(s)
						full := fmt.Sprintf("%#x", must(s.Client.Session(s.ctx)).ID())
						s.expire()
						s.rest()
						text := class(must(recipe.SessionOf(s.ctx, s.Other())).Sync(s.ctx, "/"))
						if text != "ok" || slices.ContainsFunc(s.tree(), func(n node) bool { return n.owner == full }) {
							text = "! the servers do not survive it: " + text
						}
						sc.note(l.name, "when the session ends", text)
					})
				})
			}
			if sc.calm.holds && !sc.warm && !sc.calm.waits() {
				sc.add(l.name+" giving back", func(t *testing.T) {
					sc.play(t, l.in, func(s *Stage, v Verb) {
						must(v.prepare())
						o := s.do(v, s.ctx)
						check(o.err)
						enlarge := l.fill(s)
						text := class(o.back())
						if text != "ok" {
							text = "! " + text
						}
						enlarge()
						s.rest()
						sc.note(l.name, "when it is given back", text)
					})
				})
			}
		}
	}})
}

// fillSession creates ephemeral nodes until the client's session has no room for another one, which
// is less than a server can delete at the session's end. enlarge deletes them.
func (s *Stage) fillSession() (enlarge func()) {
	session := must(recipe.SessionOf(s.ctx, s.Client))
	must(session.EnsurePath(s.ctx, path.Dir(s.Path)))
	var all []string
	for _, size := range []int{100_000, 1000, 1} {
		for {
			path := fmt.Sprint(s.Path, "-", len(all), strings.Repeat("x", size))
			if err := session.Create(s.ctx, path, nil, zk.FlagEphemeral); errors.Is(err, protocol.ErrSessionFull) {
				break
			} else if err != nil {
				check(err)
			}
			all = append(all, path)
		}
	}
	return func() {
		for _, path := range all {
			check(session.Delete(s.ctx, path, -1))
		}
	}
}

// fill sets a quota of as many nodes as there are at the stage's path. enlarge removes it.
func (s *Stage) fill() (enlarge func()) {
	operator := s.Server.Conn(s.T)
	root := path.Dir(s.Path)
	operator.Create(root, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	n := strings.Count(s.Server.Dump(root), "\n/") + 1
	limits := fmt.Sprintf("count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=%d", n)
	quota := "/zookeeper/quota" + root
	operator.Create(quota, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	must(operator.Create(quota+"/zookeeper_limits", []byte(limits), zk.FlagPersistent, zk.WorldACL(zk.PermAll)))
	must(operator.Create(quota+"/zookeeper_stats", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)))
	return func() {
		check(operator.Delete(quota+"/zookeeper_limits", -1))
		check(operator.Delete(quota+"/zookeeper_stats", -1))
	}
}
