package laws

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// Together has three clients call a verb at once, again and again. The table says how many hold the
// result at the same time at most, by their own leases, and whether each has its turns.
func Together(t *testing.T, p *Player) {
	const rounds = 6
	title := "How many of three clients hold the same at once."
	p.law(t, law{name: "together", title: title, cells: func(sc *scene) {
		if !sc.calm.holds || sc.warm {
			return
		}
		sc.add("together", func(t *testing.T) {
			sc.play(t, setting{}, func(s *Stage, v Verb) {
				if v.Before != nil || v.Beside != nil {
					return // the row has the other client do something else
				}
				third := s.Server.Client(s.T, protocol.WithSessionTimeout(timeout), protocol.WithOwnerData(nil))
				var holders holders
				var callers sync.WaitGroup
				for i, client := range []*protocol.Client{s.Client, s.Other(), third} {
					other := *s
					other.Client = client
					v := other.verb(sc.row)
					callers.Go(func() {
						for n := 0; n < rounds && s.ctx.Err() == nil; {
							h, err := v.Call(s.ctx)
							if err == nil && h != nil {
								holders.hold(i, h.Hold)
								n++
								check(h.Back(s.ctx))
							}
							time.Sleep(time.Millisecond)
						}
					})
				}
				callers.Wait()
				text := fmt.Sprintf("at most %d at once", holders.most)
				if s.ctx.Err() != nil || holders.unfair > 2*rounds {
					text = fmt.Sprint("! ", text, "; turns: ", holders.turns)
				}
				sc.note("three clients", "", text)
			})
		})
	}})
}

// Holders are those who hold something at this moment.
type holders struct {
	mu     sync.Mutex
	now    int
	most   int
	turns  [3]int
	unfair int // by how many turns a client was ahead of another
}

// hold holds h for a while, unless it is lost.
func (c *holders) hold(i int, h Hold) {
	enter := func(d int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now += d
		c.most = max(c.most, c.now)
		if d > 0 {
			c.turns[i]++
			c.unfair = max(c.unfair, c.turns[i]-min(c.turns[0], c.turns[1], c.turns[2]))
		}
	}
	if h.Err() == nil {
		enter(1)
		time.Sleep(20 * time.Millisecond)
		enter(-1)
	}
}
