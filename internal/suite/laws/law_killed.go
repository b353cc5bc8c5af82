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

// Killed ends the process at each packet of a call: nothing that it sends arrives any more, and its
// session expires. What it leaves stands in the table. Another process makes the same call, which
// succeeds: it does what the first one has not, or finds it done.
func Killed(t *testing.T, p *Player) {
	p.law(t, law{name: "killed", title: "What a process leaves that dies during a call.", cells: func(sc *scene) {
		for _, p := range sc.calm.packets {
			sc.add(fmt.Sprint("killed before ", p.step, " ", p), func(t *testing.T) { sc.killed(t, p.step) })
		}
	}})
}

var container = regexp.MustCompile(`^(the path|zkrecipes(/[a-z]+)?)$`)

func (sc *scene) killed(t *testing.T, step int) {
	sc.play(t, setting{}, func(s *Stage, v Verb) {
		if sc.warm {
			s.warm(v)
		}
		base, before := must(v.prepare()), s.left()
		var at atomic.Pointer[string]
		for name := range before { // what the call needed goes with the session, or is used up
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

		// The next process has a link and a client of its own. The other client is a new one, too: it
		// may hold what the dead one was about to break.
		if s.others.Load() {
			s.Other().Close()
		}
		opts := []protocol.ConnectOption{protocol.WithSessionTimeout(timeout), protocol.WithOwnerData(nil)}
		next := *s
		next.Link = s.Server.Link(s.T)
		next.Client = next.Link.Client(s.T, opts...)
		next.Other = sync.OnceValue(func() *protocol.Client { return s.Server.Client(s.T, opts...) })
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
	})
}
