package queue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// exclusive notes the holder of each item.
type exclusive struct {
	mu     sync.Mutex
	holder map[string]*queue.Item
	done   map[string]int
	errs   []error
}

func (e *exclusive) hold(it *queue.Item) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if other := e.holder[it.ID()]; other != nil && other.Err() == nil && it.Err() == nil {
		e.errs = append(e.errs, fmt.Errorf("%s has two holders", it.ID()))
	}
	e.holder[it.ID()] = it
}

func (e *exclusive) ended(it *queue.Item, acknowledged bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if acknowledged {
		e.done[it.ID()]++
	}
}

// Random schedules of lost answers, cuts, delays and calls that are given up: no item has two
// holders, none is acknowledged twice, and none stays reserved for no consumer while its session
// lives.
func TestItemsHaveOneHolder(t *testing.T) {
	t.Parallel()
	seeds := 20
	if testing.Short() {
		seeds = 5
	}
	first := rand.Uint64()
	for i := range seeds {
		seed := first + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { oneHolder(t, seed) })
		})
	}
}

func oneHolder(t *testing.T, seed uint64) {
	const clients, workers, items = 4, 2, 30
	opts := []recipestest.Option{recipestest.WithInMemory()}
	if seed%2 == 0 {
		opts = append(opts, recipestest.Lagging(50*time.Millisecond))
	}
	srv := recipestest.Start(t, opts...)
	operator := srv.Client(t)
	path := lasting(t, operator, srv.Root(t)+"/q")
	_, err := queue.New(operator, path).OfferAll(t.Context(), numbered(0, items))
	require.NoError(t, err)

	e := &exclusive{holder: make(map[string]*queue.Item), done: make(map[string]int)}
	ctx, stop := context.WithTimeout(t.Context(), 40*time.Second)
	defer stop()
	var faults, wait sync.WaitGroup
	for i := range clients {
		link := srv.Link(t)
		q := queue.New(link.Client(t), path)
		faults.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for ctx.Err() == nil {
				link.Delay(time.Duration(r.IntN(30)) * time.Millisecond)
				switch r.IntN(4) {
				case 0:
					link.Cut()
					time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
					link.Heal()
				case 1:
					link.LoseReply(recipestest.OpMulti, 1+r.IntN(2))
				case 2:
					link.LoseReply(recipestest.OpAny, 1)
				}
				time.Sleep(time.Duration(r.IntN(800)) * time.Millisecond)
			}
			link.LoseReply(recipestest.OpAny, 0)
			link.Delay(0)
		})
		for j := range workers {
			wait.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(100+i*workers+j)))
				for ctx.Err() == nil {
					part, cancel := context.WithTimeout(ctx, time.Duration(1+r.IntN(400))*time.Millisecond)
					it, err := q.Reserve(part)
					cancel()
					if err != nil {
						continue
					}
					e.hold(it)
					time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
					part, cancel = context.WithTimeout(ctx, time.Duration(1+r.IntN(1000))*time.Millisecond)
					if r.IntN(3) == 0 {
						e.ended(it, it.Ack(part) == nil)
					} else {
						_ = it.Nack(part)
					}
					cancel()
				}
			})
		}
	}
	wait.Wait()
	faults.Wait()
	synctest.Wait()
	time.Sleep(30 * time.Second) // what goes on in the background comes to its end; no session does

	require.Empty(t, e.errs)
	for id, n := range e.done {
		require.Equal(t, 1, n, id)
	}
	left := children(t, operator, path)
	for _, name := range left {
		require.Zero(t, e.done[name], name)
		require.Empty(t, children(t, operator, path+"/"+name))
	}
	require.Less(t, len(left), items, "nothing was acknowledged")
	require.NoError(t, suite.Session(t, operator).Err())
}
