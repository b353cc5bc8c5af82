package laws

import (
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// Lag plays a call at servers that don't know the newest state yet. It also cuts the server of a
// holder (or of a call) off from its ensemble. The server still answers from its old state, or even
// believes that it leads. No two clients may hold the same lock, and nothing may happen twice.
func Lag(t *testing.T, p *Player) {
	// A member is the server of the client under test. The other client is at the leader.
	member := setting{begin: func(s *Stage) {
		s.Member = s.Server.Embedded().Follower()
		s.Link.Move(s.Member)
	}}

	all := setting{server: []recipestest.Option{recipestest.Lagging(300 * time.Millisecond)}, ready: time.Second}
	behind := setting{begin: func(s *Stage) {
		member.begin(s)
		s.Member.Lag(300 * time.Millisecond)
	}}
	eager := setting{
		begin: below, view: views[0].connect, ready: time.Second,
		server: append(all.server[:1:1], recipestest.WithConfigFunc(func(c *embedded.Config) { c.EagerACL = true })),
	}

	rejoin := func(s *Stage) { s.expired.Store(true); time.AfterFunc(2*timeout, s.Member.Rejoin) }
	lost := []way{
		{"its server is cut off", func(s *Stage, _ Verb) { s.Member.Isolate(); rejoin(s) }},
		{"its server is deposed", func(s *Stage, _ Verb) { s.Member.Depose(); rejoin(s) }},
	}

	title := "What comes of a call at servers that lag, or that have lost their leader."
	p.law(t, law{name: "lag", title: title, embedded: true, cells: func(sc *scene) {
		if sc.calm.holds && !sc.warm {
			for _, way := range lost {
				sc.cell(way.name, member, func(s *Stage, v Verb, _ int) { sc.taken(s, v, way) })
			}
		}

		for _, p := range sc.calm.packets {
			sc.broken("its server lags from", p, member, func(s *Stage, _ []string) { s.Member.Lag(300 * time.Millisecond) }, sc.judged)
			if p.request {
				sc.broken("it moves, while that takes effect, to a server whose syncs are no fence, at", p, member, (*Stage).overtakes, sc.judged)
			}
			if !sc.warm && p.creates() && strings.Contains(p.String(), "ME") { // a node of its own
				sc.broken("its caller leaves while it moves to such a server, at", p, member, func(s *Stage, operations []string) {
					s.overtakes(operations)
					s.cancel()
				}, sc.judged)
			}
			for _, way := range lost {
				sc.broken(way.name+" before", p, member, func(s *Stage, _ []string) { way.take(s, Verb{}) }, sc.judged)
			}
		}

		if len(sc.calm.packets) > 0 && !sc.warm {
			whenever := func(s *Stage, v Verb, o outcome, base int, p packet) (string, string) {
				_, text := sc.judged(s, v, o, base, p) // the first packet differs: a member that lags is asked to catch up
				return "", text
			}
			sc.broken("all servers lag by up to 300 ms", sc.calm.packets[0], all, func(*Stage, []string) {}, whenever)
			sc.broken("all servers lag and check ACLs by themselves", sc.calm.packets[0], eager, func(*Stage, []string) {}, whenever)
			sc.broken("its server has not heard of what came just before", sc.calm.packets[0], behind, func(*Stage, []string) {},
				func(s *Stage, v Verb, o outcome, base int, p packet) (string, string) {
					_, text := whenever(s, v, o, base, p)
					if sc.calm.waits() && calm(o.err) == nil && !o.late {
						text = "! too early: " + text
					}
					return "", text
				})
		}
	}})
}

// overtakes has the client lose the answer to a request, and resume its session before that has
// taken effect, at a member whose syncs are no fence. A second later no member lags any more.
func (s *Stage) overtakes([]string) {
	next := s.Server.Embedded().Follower()
	next.AnswerSyncsAtOnce()
	next.Lag(200 * time.Millisecond)
	s.Member.Lag(200 * time.Millisecond)
	time.AfterFunc(10*time.Millisecond, func() {
		s.Link.Move(next)
		s.Link.Cut()
		s.Link.Heal()
	})
	time.AfterFunc(time.Second, func() {
		s.Member.Lag(0)
		next.Lag(0)
	})
}
