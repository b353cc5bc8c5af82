package laws

import (
	"fmt"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Second lets two faults strike. The first comes at a packet of the call. The second comes a few
// packets later, while the call finds out about the first.
func Second(t *testing.T, p *Player) {
	refuse := func(code zkwire.Code) fault {
		return func(s *Stage, operations []string) {
			switch op, _, _ := strings.Cut(operations[0], " "); op {
			case "connect", "setWatches", "answer", "event": // no server refuses these
			default:
				s.Link.Fail(recipestest.OpAny, "", int32(code), 1)
			}
		}
	}

	faults := map[string]fault{
		"cut":       cut,
		"expired":   expire,
		"throttled": refuse(zkwire.CodeThrottled),
		"no auth":   refuse(zkwire.CodeNoAuth),
		"cancelled": func(s *Stage, _ []string) { s.cancel() },
		"gone": func(s *Stage, operations []string) { // by an operator's hand
			s.gone.Store(true)
			s.vanish(operations[0])
		},
	}

	pairs := [][2]string{
		{"cut", "cut"}, {"cut", "expired"}, {"cut", "throttled"}, {"cut", "no auth"}, {"cut", "cancelled"},
		{"expired", "cut"}, {"expired", "cancelled"}, {"throttled", "cut"}, {"throttled", "expired"}, {"cancelled", "cut"},
		{"cut", "gone"},
	}

	title := "What comes of a call in which two faults follow each other."
	p.law(t, law{name: "second", title: title, loose: true, cells: func(sc *scene) {
		for _, p := range sc.calm.packets {
			for i := range 3 { // of many: what matters is that each pair comes often
				pair, later := pairs[(3*p.step+i)%len(pairs)], 1+(p.step+2*i)%5
				var disarm func() bool
				name := fmt.Sprint(pair[0], " and ", pair[1])
				sc.broken(name, p, setting{}, func(s *Stage, operations []string) {
					faults[pair[0]](s, operations)
					disarm = s.Link.Meet(later, func(operations []string) { faults[pair[1]](s, operations) })
				}, func(s *Stage, v Verb, o outcome, base int, p packet) (at, text string) {
					if disarm() { // it must not strike when the stage is gone
						o.back()
						return "", ""
					}
					// Which packet is the second depends on how they race.
					return anything, s.judge(v, o, base, *sc.calm)
				})
			}
		}
	}})
}
