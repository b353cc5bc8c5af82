package semaphore_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// BenchmarkUncontended compares a semaphore of which permits are left with a lock.
func BenchmarkUncontended(b *testing.B) {
	srv := recipestest.Start(b)
	c, root := srv.Client(b), srv.Root(b)
	b.Run("lock", func(b *testing.B) {
		m := lock.New(c, root+"/lock")
		for b.Loop() {
			l, err := m.Lock(b.Context())
			require.NoError(b, err)
			require.NoError(b, l.Unlock(b.Context()))
		}
	})
	for held := range 3 {
		b.Run(fmt.Sprintf("semaphore, %d held", held), func(b *testing.B) {
			s := semaphore.New(c, fmt.Sprintf("%s/%d", root, held), 4)
			for range held {
				defer release(b, acquire(b, s))
			}
			for b.Loop() {
				release(b, acquire(b, s))
			}
		})
	}
}

// BenchmarkCrowd has 8 clients take 4 permits in turn, beside a lock.
func BenchmarkCrowd(b *testing.B) {
	const clients = 8
	for name, do := range map[string]func(c *protocol.Client, path string) func(context.Context) error{
		"lock": func(c *protocol.Client, path string) func(context.Context) error {
			m := lock.New(c, path)
			return func(ctx context.Context) error {
				return m.Do(ctx, func(context.Context, *lock.Lease) error { return nil })
			}
		},
		"4 permits": func(c *protocol.Client, path string) func(context.Context) error {
			s := semaphore.New(c, path, 4)
			return func(ctx context.Context) error {
				return s.Do(ctx, func(context.Context, *semaphore.Permit) error { return nil })
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			srv := recipestest.Start(b)
			path := srv.Root(b) + "/crowd"
			tickets := make(chan struct{})
			var wait suite.Group
			for range clients {
				one := do(srv.Client(b), path)
				wait.Go(func() error {
					for range tickets {
						if err := one(b.Context()); err != nil {
							return err
						}
					}
					return nil
				})
			}
			for b.Loop() {
				tickets <- struct{}{}
			}
			close(tickets)
			require.NoError(b, wait.Wait())
		})
	}
}

// BenchmarkManyPermits measures what many holders and as many waiters cost, in one session and in
// several. An operation is one hand-over: a release of the last holder, which wakes as many waiters
// as there are permits, until one of them has its permit and the others wait again.
func BenchmarkManyPermits(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		for _, sessions := range []int{1, 10} {
			b.Run(fmt.Sprintf("permits=%d/sessions=%d", n, sessions), func(b *testing.B) {
				manyPermits(b, n, sessions)
			})
		}
	}
}

func manyPermits(b *testing.B, n, sessions int) {
	srv := recipestest.Start(b)
	path := srv.Root(b) + "/many"
	holder := semaphore.New(srv.Client(b), path, n)
	held := make([]*semaphore.Permit, n)
	for i := range held {
		held[i] = acquire(b, holder)
	}
	before := memory()

	var links []*recipestest.Link
	var clients []*protocol.Client
	got := make(chan *semaphore.Permit, n)
	ctx, cancel := context.WithCancel(b.Context())
	var wait suite.Group
	sum := func(op recipestest.Op) (sum int) {
		for i := range links {
			suite.CatchUp(b, clients[i])
			sum += links[i].Count(op)
		}
		return sum
	}
	bytes := func() (sum int64) {
		for _, l := range links {
			sum += l.ReplyBytes()
		}
		return sum
	}
	var semaphores []*semaphore.Semaphore
	for range sessions {
		link := srv.Link(b)
		c := link.Client(b)
		links, clients = append(links, link), append(clients, c)
		semaphores = append(semaphores, semaphore.New(c, path, n))
	}
	for i := range n {
		s := semaphores[i%sessions]
		wait.Go(func() error {
			p, err := s.Acquire(ctx)
			if err == nil {
				got <- p
			}
			return nil
		})
	}
	inLine := func(n int) {
		suite.Soon(b, func() bool {
			line, err := holder.Contenders(b.Context())
			require.NoError(b, err)
			return len(line) == n
		}, "contenders in line")
	}
	inLine(2 * n)
	quiet(b, links)
	perWaiter, joining := float64(memory()-before)/float64(n), float64(bytes())/float64(n)

	listings, requests, received, ops := 0, 0, int64(0), 0
	for b.Loop() {
		l, r, y := sum(recipestest.OpGetChildren), sum(recipestest.OpAny), bytes()
		release(b, held[len(held)-1])
		next := <-got
		quiet(b, links)
		listings += sum(recipestest.OpGetChildren) - l
		requests += sum(recipestest.OpAny) - r - 2*sessions
		received += bytes() - y
		held[len(held)-1] = next
		ops++
		if ops == n {
			break
		}
	}
	b.ReportMetric(perWaiter, "B/waiter")
	b.ReportMetric(joining, "joinB/waiter")
	b.ReportMetric(float64(listings)/float64(ops), "listings/op")
	b.ReportMetric(float64(requests)/float64(ops), "requests/op")
	b.ReportMetric(float64(received)/float64(ops), "B/op-wire")
	cancel()
	require.NoError(b, wait.Wait())
	close(got)
	release(b, held...)
	for p := range got {
		release(b, p)
	}
	inLine(0) // the waiters' nodes are deleted in the background
}

// quiet waits until the clients have been silent for a moment.
func quiet(b *testing.B, links []*recipestest.Link) {
	last, same := -1, 0
	suite.Soon(b, func() bool {
		now := 0
		for _, l := range links {
			now += l.Packets()
		}
		if now == last {
			same++
		} else {
			last, same = now, 0
		}
		return same > 20
	}, "quiet")
}

func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
