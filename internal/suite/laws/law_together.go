package laws

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// Together lets three clients call a verb at once, again and again. The table says how many of them
// hold a lease at the same time, at most. Each client must get its turns. If a row says what a turn
// is, all must get them evenly. An exclusive lease must be alone.
func Together(t *testing.T, p *Player) {
	title := "How many of three clients hold the same at once."
	p.law(t, law{name: "together", title: title, cells: func(sc *scene) {
		if (sc.calm.holds || sc.calm.turns) && !sc.warm {
			sc.add("together", sc.together)
		}
	}})
}

func (sc *scene) together(t *testing.T) {
	const rounds = 6
	sc.play(t, setting{}, func(s *Stage, v Verb) {
		if v.Turn == nil && (v.Before != nil || v.Beside != nil) {
			return // the row has the other client do something else
		}

		third := s.Server.Client(s.T, usually...)
		var holders holders
		var callers sync.WaitGroup

		for i, client := range []*protocol.Client{s.Client, s.Other(), third} {
			other := *s
			other.Client = client
			turn := other.verb(sc.row).turn()
			callers.Go(func() {
				for n := 0; n < rounds && s.ctx.Err() == nil; time.Sleep(time.Millisecond) {
					if turn(s.ctx, holders.hold) == nil {
						n++
						holders.turn(i)
					}
				}
			})
		}

		for n := 0; n < 3*rounds && v.Beside != nil; n++ {
			if n < 2*rounds { // the others come all at once
				time.Sleep(timeout / 40)
			}
			v.Beside(s.ctx)
		}

		callers.Wait()

		text := fmt.Sprintf("at most %d at once", holders.most)
		switch {
		case s.ctx.Err() != nil, v.Turn != nil && holders.unfair > rounds-2:
			text = fmt.Sprint("! ", text, "; turns: ", holders.turns)
		case holders.mixed:
			text = "! " + text + "; an exclusive lease is not alone"
		}

		sc.note("three clients", "", text)
	})
}

// turn is what each of several clients does.
func (v Verb) turn() func(ctx context.Context, hold func(Hold)) error {
	if v.Turn != nil {
		return v.Turn
	}
	return func(ctx context.Context, hold func(Hold)) error {
		h, err := v.Call(ctx)
		if err == nil {
			hold(h)
			check(h.Back(ctx))
		}
		return err
	}
}

// Holders are those who hold something at this moment.
type holders struct {
	mu        sync.Mutex
	now       int
	exclusive int  // of them
	mixed     bool // one that is exclusive was not alone
	most      int
	turns     [3]int
	unfair    int // by how many turns a client was ahead of another
}

// turn notes that a client has had a turn.
func (c *holders) turn(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turns[i]++
	c.unfair = max(c.unfair, c.turns[i]-min(c.turns[0], c.turns[1], c.turns[2]))
}

// hold holds h for a while, unless it is lost.
func (c *holders) hold(h Hold) {
	exclusive := 0
	if e, ok := h.(interface{ Exclusive() bool }); ok && e.Exclusive() {
		exclusive = 1
	}
	enter := func(d int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now += d
		c.exclusive += d * exclusive
		c.mixed = c.mixed || c.exclusive > 0 && c.now > 1
		c.most = max(c.most, c.now)
	}
	if h.Err() == nil {
		enter(1)
		time.Sleep(20 * time.Millisecond)
		enter(-1)
	}
}
