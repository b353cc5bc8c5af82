package queue_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// Each benchmark does the same with the raw client, alternating, and reports how much longer the
// queue takes.
type race struct {
	b         *testing.B
	srv       *recipestest.Server
	conn      *zk.Conn
	q         *queue.Queue
	raw       string // a directory
	ours, his time.Duration
}

// onEach runs a benchmark on a server in memory, where processor time is all that counts, and on a
// real one.
func onEach(b *testing.B, run func(*testing.B, *recipestest.Server)) {
	b.Run("embedded", func(b *testing.B) { run(b, recipestest.Start(b)) })
	b.Run("real", func(b *testing.B) { run(b, ensemble.Real(b)) })
}

func newRace(b *testing.B, srv *recipestest.Server) *race {
	c, root := srv.Client(b), srv.Root(b)
	s, err := c.Session(b.Context())
	require.NoError(b, err)
	return &race{b: b, srv: srv, conn: s.Conn(), q: queue.New(c, lasting(b, c, root+"/q")), raw: lasting(b, c, root+"/raw")}
}

const heat = 200 // entries until the other one goes on

func (r *race) run(ours, raw func()) {
	for r.b.Loop() {
		began := time.Now()
		raw()
		between := time.Now()
		ours()
		r.his += between.Sub(began)
		r.ours += time.Since(between)
	}
	r.report()
}

func (r *race) create() {
	_, err := r.conn.Create(r.raw+"/qn-", []byte("data"), zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(r.b, err)
}

// fill puts entries into both, and returns the names of the raw ones.
func (r *race) fill(n int) (raw []string) {
	r.b.StopTimer()
	defer r.b.StartTimer()
	for range n / 100 {
		var ops []any
		for range 100 {
			ops = append(ops, &zk.CreateRequest{Path: r.raw + "/qn-", Data: []byte("data"), Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagSequence})
		}
		answers, err := r.conn.Multi(ops...)
		require.NoError(r.b, err)
		for _, a := range answers {
			raw = append(raw, a.String)
		}
		_, err = r.q.OfferAll(r.b.Context(), numbered(0, 100))
		require.NoError(r.b, err)
	}
	return raw
}

// pipelined does n things with so many goroutines.
func pipelined(n, goroutines int, do func(i int)) {
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := g; i < n; i += goroutines {
				do(i)
			}
		})
	}
	wg.Wait()
}

func BenchmarkOffer(b *testing.B) { onEach(b, benchOffer) }

func benchOffer(b *testing.B, srv *recipestest.Server) {
	r := newRace(b, srv)
	r.run(func() {
		for range heat {
			offer(b, r.q, "data")
		}
	}, func() {
		for range heat {
			r.create()
		}
	})
}

func BenchmarkOfferPipelined(b *testing.B) {
	for _, goroutines := range []int{16, 64} {
		b.Run(fmt.Sprint(goroutines), func(b *testing.B) {
			onEach(b, func(b *testing.B, srv *recipestest.Server) {
				r := newRace(b, srv)
				r.run(func() {
					pipelined(heat, goroutines, func(int) { offer(b, r.q, "data") })
				}, func() {
					pipelined(heat, goroutines, func(int) { r.create() })
				})
			})
		})
	}
}

func BenchmarkTake(b *testing.B) { onEach(b, benchTake) }

func benchTake(b *testing.B, srv *recipestest.Server) {
	r := newRace(b, srv)
	var raw []string
	for b.Loop() {
		b.StopTimer()
		raw = r.fill(heat)
		b.StartTimer()
		began := time.Now()
		for _, node := range raw {
			require.NoError(b, r.conn.Delete(node, -1))
		}
		between := time.Now()
		for range heat {
			_, err := r.q.Take(b.Context())
			require.NoError(b, err)
		}
		r.his += between.Sub(began)
		r.ours += time.Since(between)
	}
	r.report()
}

func (r *race) report() {
	r.b.ReportMetric(float64(r.ours.Nanoseconds())/float64(r.b.N*heat), "ns/entry")
	r.b.ReportMetric(float64(r.his.Nanoseconds())/float64(r.b.N*heat), "raw-ns/entry")
	r.b.ReportMetric(float64(r.ours)/float64(r.his), "times-raw")
}

func BenchmarkPollN(b *testing.B) { onEach(b, benchPollN) }

func benchPollN(b *testing.B, srv *recipestest.Server) {
	r := newRace(b, srv)
	for b.Loop() {
		b.StopTimer()
		raw := r.fill(heat)
		b.StartTimer()
		began := time.Now()
		pipelined(heat, 64, func(i int) { require.NoError(b, r.conn.Delete(raw[i], -1)) })
		between := time.Now()
		data, err := r.q.PollN(b.Context(), heat)
		require.NoError(b, err)
		require.Len(b, data, heat)
		r.his += between.Sub(began)
		r.ours += time.Since(between)
	}
	r.report()
}

// Consumers in sessions of their own empty a queue. Where a round trip costs nothing but the
// processors' time, which one consumer can keep busy, more of them are hardly faster; with a
// network in between they are.
func BenchmarkConsumers(b *testing.B) {
	for _, delay := range []time.Duration{0, time.Millisecond / 2} {
		for _, n := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("%v/%d", 2*delay, n), func(b *testing.B) { consume(b, delay, n) })
		}
	}
}

func consume(b *testing.B, delay time.Duration, n int) {
	srv := recipestest.Start(b)
	path := lasting(b, srv.Client(b), srv.Root(b)+"/q")
	producer := queue.New(srv.Client(b), path)
	var consumers []*queue.Queue
	for range n {
		link := srv.Link(b)
		link.Delay(delay)
		consumers = append(consumers, queue.New(link.Client(b), path))
	}
	for b.Loop() {
		b.StopTimer()
		_, err := producer.OfferAll(b.Context(), numbered(0, heat))
		require.NoError(b, err)
		b.StartTimer()
		var wait suite.Group
		for _, q := range consumers {
			wait.Go(func() error {
				for range heat / n {
					if _, err := q.Take(b.Context()); err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(b, wait.Wait())
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*heat), "ns/entry")
}
