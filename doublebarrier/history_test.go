package doublebarrier_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// unlapped checks that no member was let in while a member of an earlier round, which left properly
// later, had not begun to leave.
func unlapped(visits []*visit) error {
	in := slices.DeleteFunc(slices.Clone(visits), func(v *visit) bool { return v.err != nil })
	slices.SortFunc(in, func(a, b *visit) int { return int(a.token - b.token) })
	var last time.Time // departure from all earlier rounds
	var next time.Time

	for i, v := range in {
		if i > 0 && v.token != in[i-1].token {
			last = next
		}
		if v.entered.Before(last) {
			return fmt.Errorf("%s was in at %v, when a member of an earlier round left at %v", v.name, v.entered, last)
		}
		if v.leave == nil && v.departing.After(next) {
			next = v.departing
		}
	}
	return nil
}

func TestHundredsOfRoundsWithKillsAndReplacements(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		const n, crew, rounds = 3, 5, 300
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		leaving, giveUp := context.WithCancel(t.Context()) // who is in leaves, also at the end
		defer giveUp()
		stuck := time.AfterFunc(2*suite.Limit, func() { cancel(); giveUp() }) // without a round
		defer stuck.Stop()

		var mu sync.Mutex // protects what follows
		var visits []*visit
		var seen = make(map[int64]bool)
		var all group
		var kills atomic.Int32

		for i := range crew {
			all.Go(func() error {
				link := srv.Link(t)
				c := link.Client(t)
				b := doublebarrier.New(c, path, n, doublebarrier.WithWaiting())
				for k := 0; ctx.Err() == nil; k++ {
					soon, stop := context.WithCancel(ctx)
					defer stop()
					switch {
					case k%17 == i+3:
						time.AfterFunc(time.Duration(k%7)*time.Millisecond, stop)
					case k%23 == i+7: // killed at one step or another, and replaced
						s, err := c.Session(ctx)
						if err != nil {
							return nil
						}
						defer link.At(k%19+1, func() {
							kills.Add(1)
							suite.Expire(srv, s.ID())
						})()
					case k%11 == i+2:
						defer link.At(k%13+1, func() { link.Cut(); link.Heal() })()
					}

					v := (&visit{name: fmt.Sprintf("%d/%d", i, k)}).start(soon, leaving, b, 0)
					<-v.done
					stop()

					mu.Lock()
					visits = append(visits, v)
					if v.err == nil && !seen[v.token] {
						seen[v.token] = true
						stuck.Reset(2 * suite.Limit)
					}
					if len(seen) >= rounds {
						cancel()
					}
					mu.Unlock()
				}
				return nil
			})
		}

		require.NoError(t, all.Wait())
		require.GreaterOrEqual(t, len(seen), rounds)
		require.NoError(t, agree(n, visits, int(kills.Load()))) // a member that lost its session may not know that it was counted
		require.NoError(t, unlapped(visits))

		for _, v := range visits {
			if v.err != nil && ctx.Err() == nil {
				require.True(t, v.withdrew() || v.vague(), v.err)
			}
		}
		vanishes(t, srv.Client(t), path)
	})
}
