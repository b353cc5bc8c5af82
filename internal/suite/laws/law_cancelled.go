package laws

import (
	"fmt"
	"testing"
	"time"
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
	}})
}
