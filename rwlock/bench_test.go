package rwlock_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

// BenchmarkUncontended measures a lock without contention.
func BenchmarkUncontended(b *testing.B) {
	srv := recipestest.Start(b)
	m := rwlock.New(srv.Client(b), srv.Root(b)+"/lock")
	for name, v := range map[string]verb{"Lock": write, "RLock": read} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				l, err := v(m, b.Context())
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Unlock(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}

	b.Run("Downgrade", func(b *testing.B) {
		for b.Loop() {
			l, err := m.Lock(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			if l, err = l.Downgrade(b.Context()); err != nil {
				b.Fatal(err)
			}
			if err := l.Unlock(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkMostlyReads has eight sessions share one lock. Each writes every tenth time and reads
// otherwise; an operation is one such time of any session. It reports the cost in packets.
func BenchmarkMostlyReads(b *testing.B) {
	srv := recipestest.Start(b)
	path := srv.Root(b) + "/lock"
	const sessions = 8
	var links []*recipestest.Link
	var clients []*protocol.Client
	for range sessions {
		link := srv.Link(b)
		links, clients = append(links, link), append(clients, link.Client(b))
	}

	tickets := make(chan int)
	var wait group
	for _, c := range clients {
		m := rwlock.New(c, path)
		wait.Go(func() error {
			for i := range tickets {
				v := read
				if i%10 == 0 {
					v = write
				}
				l, err := v(m, b.Context())
				if err != nil {
					return err
				}
				if err := l.Unlock(b.Context()); err != nil {
					return err
				}
			}

			return nil
		})
	}

	i := 0
	for b.Loop() {
		tickets <- i
		i++
	}

	close(tickets)
	if err := wait.Wait(); err != nil {
		b.Fatal(err)
	}

	packets := 0
	for _, l := range links {
		packets += l.Count(recipestest.OpAny)
	}

	b.ReportMetric(float64(packets)/float64(b.N), "requests/op")
}
