package laws

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
)

// Strays are names of nodes that are none of ours, and no contenders of other libraries either.
var strays = []string{
	"stray", "stray-0000000007", "_c_stray", "lock-", "entry-stray-0000000001", "ready-stray",
}

// counting matches verbs for which each node counts, whosever it is. A node below a barrier keeps
// it set, and a node in a bounded queue takes the place of an entry. For verbs that wait for a node
// the other client deletes everything below it.
var counting = regexp.MustCompile(`^barrier\.Barrier\.(Set|Wait)|OfferWait full|^recipe\.(Session\.Wait|Watch\.)`)

// Strays puts foreign nodes below the path of a verb, deletes the path by hand after the call, and
// lets the servers reap its containers. It also gives a verb the node of another recipe's
// contender. The call must work as always and change no node of others.
func Strays(t *testing.T, p *Player) {
	title := "What comes of a call among nodes of others, or after a path was deleted by hand."
	p.law(t, law{name: "strays", title: title, embedded: true, cells: func(sc *scene) {
		for _, name := range strays {
			if counting.MatchString(sc.row.Name) {
				break
			}
			sc.cell(name, setting{}, func(s *Stage, v Verb, _ int) { sc.among(s, v, name) })
		}
		if !sc.warm {
			sc.cell("deleted", setting{}, sc.swept)
			sc.confused()
		}
		for _, p := range sc.calm.packets {
			sc.broken("containers reaped before", p, setting{}, func(s *Stage, _ []string) {
				s.Server.Embedded().ReapContainers()
			}, sc.judged)
		}
	}})
}

// among makes a call among nodes with a name.
func (sc *scene) among(s *Stage, v Verb, name string) {
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
}

// confused adds cells in which a verb gets the node of another recipe's contender at the same path.
// It must not replace that contender's data.
func (sc *scene) confused() {
	recipe, _, _ := strings.Cut(sc.row.Name, ".")
	ours := func(row string) bool { return strings.HasPrefix(row, recipe+".") }
	if !sc.calm.about || !slices.ContainsFunc(neighbours, ours) {
		return
	}

	for _, row := range sc.rows {
		if !slices.Contains(neighbours, row.Name) || ours(row.Name) {
			continue
		}

		sc.add("about "+row.Name, func(t *testing.T) {
			sc.play(t, setting{}, func(s *Stage, v Verb) {
				o := s.do(s.other().verb(row), s.ctx)
				check(o.err)
				node := s.Path + "/" + o.held.Hold.(interface{ Node() string }).Node()

				operator := s.Server.Conn(s.T)
				data, _, err := operator.Get(node)
				check(err)

				text := class(v.About(s.ctx, path.Base(node)))
				switch now, _, err := operator.Get(node); {
				case err != nil:
					text += ", and it is deleted"
				case string(now) != string(data):
					text += ", and its data are replaced"
					if len(data) > 0 {
						text = "! " + text
					}
				}

				o.back()
				sc.note("about a contender", row.Name, text)
			})
		})
	}
}

// neighbours are rows of recipes whose contenders can meet at one path.
var neighbours = []string{
	"lock.Mutex.Lock", "rwlock.RWMutex.RLock", "semaphore.Semaphore.Acquire", "election.Election.Campaign",
}

// swept deletes the path and all below it by hand, once the call has returned.
func (sc *scene) swept(s *Stage, v Verb, base int) {
	o := s.do(v, s.ctx)
	s.gone.Store(true)
	s.vanish("delete " + s.Path)
	sc.note("path deleted", "after the call", s.judge(v, o, base, *sc.calm))
}
