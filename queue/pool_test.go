package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// roundTrip is what a request and its reply take on average, on links with jitter.
const roundTrip = 2 * time.Millisecond

// withJitter keeps changing the delay of a link, until the test or stop ends it.
func withJitter(t *testing.T, link *recipestest.Link, seed uint64) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() {
		r := rand.New(rand.NewPCG(seed, 0))
		for ctx.Err() == nil {
			link.Delay(roundTrip/4 + time.Duration(r.Int64N(int64(roundTrip/2))))
			time.Sleep(time.Duration(r.Int64N(int64(roundTrip) / 2)))
		}
	})
	return func() {
		cancel()
		wait.Wait()
		link.Delay(0)
	}
}

// A pool is a session and the goroutines that consume in it.
type pool struct {
	link   *recipestest.Link
	client *protocol.Client
	queues []*queue.Queue // by goroutine; most pools share one

	mu    sync.Mutex // protects what follows
	takes []taking
	at    []time.Time // of each taking
}

// newPools returns a pool of each size, in sessions that are connected.
func newPools(t *testing.T, srv *recipestest.Server, path string, sizes ...int) (all []*pool) {
	t.Helper()
	for _, size := range sizes {
		link := srv.Link(t)
		p := &pool{link: link, client: link.Client(t)}
		q := queue.New(p.client, path)
		for range size {
			p.queues = append(p.queues, q)
		}
		suite.Session(t, p.client)
		all = append(all, p)
	}
	return all
}

// A verb takes one entry for good, and returns its data.
type verb func(context.Context, *queue.Queue) (string, error)

func pollOne(ctx context.Context, q *queue.Queue) (string, error) {
	data, err := q.Poll(ctx)
	return string(data), err
}

func reserveAndAck(ctx context.Context, q *queue.Queue) (string, error) {
	it, err := q.TryReserve(ctx)
	if err != nil {
		return "", err
	}
	return string(it.Data()), it.Ack(ctx)
}

// A result says what the pools have got.
type result struct {
	shares  []int           // entries, by pool
	pauses  []time.Duration // the longest time without an entry while some were left, by pool
	elapsed time.Duration   // until the last entry
	takes   []taking
	multis  int
}

func (r result) total() (n int) {
	for _, share := range r.shares {
		n += share
	}
	return n
}

// rate is in entries a second.
func (r result) rate() float64 { return float64(r.total()) / r.elapsed.Seconds() }

func (r result) String() string {
	return fmt.Sprintf("%.0f/s, shares %v, longest pauses %v, %.2f multis per entry",
		r.rate(), r.shares, r.pauses, float64(r.multis)/float64(r.total()))
}

// consumeAll has all pools take entries until the queue is empty. Call it in a bubble: it measures
// virtual time.
func consumeAll(t *testing.T, pools []*pool, take verb) (r result) {
	t.Helper()
	multis := 0
	for i, p := range pools {
		stop := withJitter(t, p.link, uint64(i))
		defer stop()
		multis -= p.link.Count(recipestest.OpMulti)
	}
	began := time.Now()
	var wait suite.Group
	for _, p := range pools {
		for _, q := range p.queues {
			wait.Go(func() error { return p.consume(t.Context(), q, take) })
		}
	}
	require.NoError(t, wait.Wait())

	last := began
	for _, p := range pools {
		multis += p.link.Count(recipestest.OpMulti)
		r.takes = append(r.takes, p.takes...)
		for _, at := range p.at {
			if at.After(last) {
				last = at
			}
		}
	}
	r.multis = multis
	r.elapsed = last.Sub(began)
	for _, p := range pools {
		r.shares = append(r.shares, len(p.takes))
		r.pauses = append(r.pauses, p.longestPause(began, last))
	}
	return r
}

// consume takes entries until there are none.
func (p *pool) consume(ctx context.Context, q *queue.Queue, take verb) error {
	for {
		began := clock.Add(1)
		data, err := take(ctx, q)
		if errors.Is(err, queue.ErrEmpty) {
			return nil
		}
		if err != nil {
			return err
		}
		p.note(taking{data, began, clock.Add(1)})
	}
}

// work takes entries until ctx ends.
func (p *pool) work(ctx context.Context, q *queue.Queue, take verb) error {
	for {
		began := clock.Add(1)
		data, err := take(ctx, q)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		p.note(taking{data, began, clock.Add(1)})
	}
}

func (p *pool) note(x taking) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.takes, p.at = append(p.takes, x), append(p.at, time.Now())
}

func (p *pool) longestPause(began, last time.Time) (longest time.Duration) {
	previous := began
	for _, at := range append(p.at, last) {
		longest, previous = max(longest, at.Sub(previous)), at
	}
	return longest
}

// requireShares asks for shares between half and twice the average.
func requireShares(t *testing.T, shares []int) {
	t.Helper()
	total := 0
	for _, share := range shares {
		total += share
	}
	for i, share := range shares {
		require.GreaterOrEqual(t, 2*share*len(shares), total, "session %d has too little: %v", i, shares)
		require.LessOrEqual(t, share*len(shares), 2*total, "session %d has too much: %v", i, shares)
	}
}

// fill offers n numbered entries.
func fill(t *testing.T, q *queue.Queue, n int) {
	t.Helper()
	const atOnce = 1000
	for i := 0; i < n; i += atOnce {
		_, err := q.OfferAll(t.Context(), numbered(i, min(atOnce, n-i)))
		require.NoError(t, err)
	}
}
