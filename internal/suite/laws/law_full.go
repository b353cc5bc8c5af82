package laws

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// Full uses up a quota (of nodes or of bytes) or a session's room for ephemeral nodes. It does so
// before a call and before the caller gives its lease back. A call that needs another node must
// fail with ErrQuotaExceeded or ErrSessionFull and leave nothing behind. Deletions must still work.
// The servers must survive the end of a full session.
func Full(t *testing.T, p *Player) {
	quotas := setting{server: []recipestest.Option{recipestest.WithConfigFunc(func(c *embedded.Config) { c.EnforceQuota = true })}}
	limits := []struct {
		name string
		in   setting
		fill func(*Stage) (enlarge func())
	}{
		{"full", quotas, func(s *Stage) func() { return s.fill("count", "countHardLimit") }},
		{"full of data", quotas, func(s *Stage) func() { return s.fill("bytes", "byteHardLimit") }},
		{"session full", setting{}, (*Stage).fillSession},
	}

	title := "What comes of a call on a path whose quota of nodes is used up, or in a session that has no room."
	p.law(t, law{name: "full", title: title, embedded: true, most: 150, cells: func(sc *scene) {
		for _, l := range limits {
			if !sc.calm.waits() || l.name == "session full" { // else another client is refused, too
				sc.cell(l.name+" call", l.in, func(s *Stage, v Verb, base int) {
					enlarge := sync.OnceFunc(l.fill(s))
					// A call may wait for room. It must go on when there is some.
					room := time.AfterFunc(limit/2, enlarge)

					o := s.do(v, s.ctx)
					waited := !room.Stop()
					enlarge()

					text := s.judge(v, o, base, *sc.calm)
					if waited && !strings.HasPrefix(text, "!") {
						text = "waits for room, then " + text
					}
					sc.note(l.name, "before the call", text)
				})
			}

			if !sc.calm.holds || sc.warm || sc.calm.waits() {
				continue
			}

			if l.name == "session full" {
				sc.cell("session full ends", l.in, func(s *Stage, v Verb, _ int) {
					o := s.do(v, s.ctx)
					check(o.err)
					l.fill(s)
					full := fmt.Sprintf("%#x", must(s.Client.Session(s.ctx)).ID())
					s.expire()
					s.rest()
					text := class(s.operator().Sync(s.ctx, "/"))
					if text != "ok" || slices.ContainsFunc(s.tree(), func(n node) bool { return n.owner == full }) {
						text = "! the servers do not survive it: " + text
					}
					sc.note(l.name, "when the session ends", text)
				})
			}

			sc.cell(l.name+" giving back", l.in, func(s *Stage, v Verb, base int) {
				o := s.do(v, s.ctx)
				check(o.err)

				enlarge := l.fill(s)
				text := class(o.back())
				enlarge()
				s.rest()

				switch {
				case text == "ok":
				case v.since(base) == 0: // the error says that it goes on in the background
					text += ", and given back once there is room"
				default:
					text = "! " + text
				}
				sc.note(l.name, "when it is given back", text)
			})
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

// fill sets a quota of exactly the nodes (or bytes) that the stage's path has. enlarge removes it.
func (s *Stage) fill(used, limit string) (enlarge func()) {
	operator := s.Server.Conn(s.T)
	root := path.Dir(s.Path)
	operator.Create(root, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	quota := "/zookeeper/quota" + root
	operator.Create(quota, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	must(operator.Create(quota+"/zookeeper_stats", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)))
	stats, _, err := operator.Get(quota + "/zookeeper_stats") // as in "count=3,bytes=20"
	check(err)
	n := regexp.MustCompile(used + `=(\d+)`).FindSubmatch(stats)[1]
	limits := fmt.Sprintf("count=-1,bytes=-1=;%s=%s", limit, n)
	must(operator.Create(quota+"/zookeeper_limits", []byte(limits), zk.FlagPersistent, zk.WorldACL(zk.PermAll)))
	return func() {
		check(operator.Delete(quota+"/zookeeper_limits", -1))
		check(operator.Delete(quota+"/zookeeper_stats", -1))
	}
}
