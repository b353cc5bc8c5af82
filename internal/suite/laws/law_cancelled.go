package laws

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

// Cancelled ends the ctx of a call at each of its packets, while the server is 60 ms away. The call
// must return within a second and leave nothing behind.
func Cancelled(t *testing.T, p *Player) {
	const away, bound = 60 * time.Millisecond, time.Second
	p.law(t, law{name: "cancelled", title: "What comes of a call whose ctx is cancelled.", cells: func(sc *scene) {
		for _, p := range sc.calm.packets {
			var ended time.Time
			sc.broken("cancelled before", p, setting{}, func(s *Stage, _ []string) {
				s.Link.Delay(away)
				ended = time.Now()
				s.cancel()
			}, func(s *Stage, v Verb, o outcome, base int, p packet) (at, text string) {
				at, text = sc.judged(s, v, o, base, p)
				if late := o.ended.Sub(ended); late > bound {
					text = fmt.Sprint("! after ", ceil(late), ": ", text)
				}
				return at, text
			})
		}

		if !sc.warm {
			sc.cell("it is cancelled as it is asked", setting{lasts: 20 * limit}, sc.asked)
		}
	}})
}

// asked has calls come just after another call, and be gone once they have been asked some times
// whether they are.
func (sc *scene) asked(s *Stage, v Verb, _ int) {
	call, again := v, func() {
		s.do(v, s.ctx).back()
		must(v.prepare())
	}
	again()
	s.rest()
	before := s.Own("")

	for n := range 8 {
		if n > 0 {
			must(v.prepare())
		}
		again()
		call.Call = func(ctx context.Context) (*Held, error) {
			return v.Call(suite.Asked(ctx, n))
		}
		s.do(call, s.ctx).back()
		s.rest()
		if after := s.Own(""); len(after) > len(before) {
			sc.note("it is cancelled as it is asked", strconv.Itoa(n), fmt.Sprint("! nodes stay: ", after))
		}
	}
}
