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

// exclusive notes the holder of each item, by its data.
type exclusive struct {
	mu      sync.Mutex
	holder  map[string]*queue.Item
	decided map[string]bool // Ack was called
	done    map[string]int  // and has succeeded
	errs    []error
}

func (e *exclusive) hold(it *queue.Item) {
	e.mu.Lock()
	defer e.mu.Unlock()
	data := string(it.Data())
	if other := e.holder[data]; other != nil && other.Err() == nil && it.Err() == nil {
		e.errs = append(e.errs, fmt.Errorf("%s has two holders", data))
	}
	e.holder[data] = it
}

func (e *exclusive) ended(it *queue.Item, acknowledged bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.decided[string(it.Data())] = true
	if acknowledged {
		e.done[string(it.Data())]++
	}
}

// Random schedules of lost answers, cuts, delays, moves and calls that are given up: no item has
// two holders, none is acknowledged twice, lost or doubled, and none stays reserved for no consumer
// while its session lives.
func TestItemsHaveOneHolder(t *testing.T) {
	t.Parallel()
	seeds := 8
	if testing.Short() {
		seeds = 1
	}
	for seed := range uint64(seeds) {
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

	e := &exclusive{holder: make(map[string]*queue.Item), done: make(map[string]int), decided: make(map[string]bool)}
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
					switch r.IntN(6) {
					case 0, 1:
						e.ended(it, it.Ack(part) == nil)
					case 2: // an error says that ctx has ended: giving the item back goes on
						_ = it.Nack(part, queue.AtTail())
					case 3:
						_ = it.Nack(part, queue.After(time.Duration(r.IntN(1000))*time.Millisecond))
					default:
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
	left := entries(t, operator, path)
	there := make(map[string]bool)
	for _, name := range left {
		data, _ := suite.Get(t, operator, path+"/"+name)
		require.Zero(t, e.done[string(data)], name)
		require.False(t, there[string(data)], "%s is there twice", data)
		there[string(data)] = true
		require.Empty(t, children(t, operator, path+"/"+name))
	}
	for _, data := range numbered(0, items) {
		require.True(t, there[string(data)] || e.decided[string(data)], "%s is lost", data)
	}
	require.Less(t, len(left), items, "nothing was acknowledged")
	require.NoError(t, suite.Session(t, operator).Err())
}
