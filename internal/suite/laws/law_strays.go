package laws

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
)

// Strays are names of nodes that are none of ours, and no contenders of other libraries either.
var strays = []string{
	"stray", "stray-0000000007", "_c_stray", "lock-", "entry-stray-0000000001", "ready-stray",
}

// counting matches verbs for which each node counts, whosever it is: what is below a barrier keeps it
// set, what is in a bounded queue takes the place of an entry, and the other client deletes all that is
// below a node for which these wait.
var counting = regexp.MustCompile(`^barrier\.Barrier\.(Set|Wait)|OfferWait full|^recipe\.(Session\.Wait|Watch\.)`)

// Strays puts nodes of others below the path of a verb, deletes the path by hand while the result is
// held, and has the servers reap its containers. The call does what it always does, and touches
// nothing that is not its own.
func Strays(t *testing.T, p *Player) {
	title := "What comes of a call among nodes of others, or after a path was deleted by hand."
	p.law(t, law{name: "strays", title: title, embedded: true, cells: func(sc *scene) {
		for _, name := range strays {
			if counting.MatchString(sc.row.Name) {
				break
			}
			sc.add(name, func(t *testing.T) { sc.among(t, name) })
		}
		if !sc.warm {
			sc.add("deleted", sc.swept)
		}
		for _, p := range sc.calm.packets {
			sc.broken("containers reaped before", p, setting{}, func(s *Stage, _ []string) {
				s.Server.Embedded().ReapContainers()
			}, sc.judged)
		}
	}})
}

// among makes a call among nodes with a name.
func (sc *scene) among(t *testing.T, name string) {
	sc.play(t, setting{}, func(s *Stage, v Verb) {
		if sc.warm {
			s.warm(v)
		}
		must(v.prepare())
		operator := s.Server.Conn(s.T)
		root := path.Dir(s.Path)
		for _, dir := range []string{root, s.Path} { // without them there is nothing to be beside
			operator.Create(dir, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
		}
		stray := s.Path + "/" + name
		if _, err := operator.Create(stray, []byte("stray"), zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
			return // the path is an ephemeral node
		}
		gone := ""
		disappear := func() { // before the next call
			if data, stat, err := operator.Get(stray); err != nil || string(data) != "stray" || stat.Version != 0 {
				gone = "; ! the stray is gone"
			}
			operator.Delete(stray, -1)
		}
		s.disappear.Store(&disappear)
		base := v.Effect()
		o := s.do(v, s.ctx)
		text := strings.ReplaceAll(s.judge(v, o, base, rehearsal{effect: sc.calm.effect}), name, "it") + gone
		sc.note("beside a node", name, text)
	})
}

// swept deletes the path and all below it by hand, once the call has returned.
func (sc *scene) swept(t *testing.T) {
	sc.play(t, setting{}, func(s *Stage, v Verb) {
		base := must(v.prepare())
		o := s.do(v, s.ctx)
		s.gone.Store(true)
		s.vanish("delete " + s.Path)
		sc.note("path deleted", "after the call", s.judge(v, o, base, *sc.calm))
	})
}
