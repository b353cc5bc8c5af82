package laws

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// Killed ends the process at each packet of a call: none of its packets arrive any more, and its
// session expires. The table lists the nodes that stay. Then another process makes the same call,
// which must succeed (it does the work, or finds it done).
func Killed(t *testing.T, p *Player) {
	p.law(t, law{name: "killed", title: "What a process leaves that dies during a call.", cells: func(sc *scene) {
		for _, p := range sc.calm.packets {
			sc.cell(fmt.Sprint("killed before ", p.step, " ", p), setting{}, func(s *Stage, v Verb, base int) {
				sc.killed(s, v, base, p.step)
			})
		}
	}})
}

var container = regexp.MustCompile(`^(the path|zkrecipes(/[a-z]+)?)$`)

func (sc *scene) killed(s *Stage, v Verb, base, step int) {
	before := s.left()
	var at atomic.Pointer[string]
	for name := range before { // these nodes go with the session or are used up
		if strings.Contains(name, "ME") {
			delete(before, name)
		}
	}
	stop := s.Link.Meet(step, func(operations []string) {
		name := s.packet(step, operations).String()
		at.Store(&name)
		s.Link.Cut()
		s.expire()
		go s.Client.Close()
	})
	o := s.do(v, s.ctx)
	if stop() {
		o.back()
		return
	}
	s.Client.Close()
	s.rest()
	text := "done"
	if effect := v.Effect() - base; effect != sc.calm.effect {
		text = fmt.Sprint("done ×", effect)
	}
	left := s.left()
	if sc.connect != "" { // a real server deletes containers that are empty while the session expires
		maps.DeleteFunc(before, func(name string, _ int) bool { return left[name] == 0 && container.MatchString(name) })
	}
	text += difference(left, before)

	// The next process has a link and a client of its own. The other client is new, too, because
	// it can hold the lock that the dead process was about to break.
	if s.others.Load() {
		s.Other().Close()
	}
	next := *s
	next.Link = s.Server.Link(s.T)
	next.Client = next.Link.Client(s.T, usually...)
	next.Other = sync.OnceValue(func() *protocol.Client { return s.Server.Client(s.T, usually...) })
	v = next.verb(sc.row)
	base, err := v.prepare()
	if err != nil {
		sc.note("killed before", *at.Load(), "! "+text+"; then not ready: "+class(err))
		return
	}
	o = next.do(v, s.ctx)
	s.rest()
	if effect := v.Effect() - base; calm(o.err) != nil || effect != 0 && effect != sc.calm.effect {
		text = fmt.Sprint("! ", text, "; the next process: ", class(o.err), ", done ×", effect)
	} else if effect != sc.calm.effect { // a key that is done, for example
		text += "; the next process finds it done"
	}
	if err := o.back(); err != nil {
		text += "; gives back: " + class(err)
	}
	sc.note("killed before", *at.Load(), text)
}
