package zkotel_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	zkotel "github.com/zkrecipes/zkrecipes/otel"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// timeout is the session timeout of the clients here.
const timeout = 4 * time.Second

func TestContendedLock(t *testing.T) {
	recipestest.Bubble(t, func(t *testing.T, server *recipestest.Server) {
		p, path := newProbe(t), server.Root(t)+"/a"
		first := lock.New(server.Client(t, protocol.WithObserver(p)), path)
		second := lock.New(server.Client(t, protocol.WithObserver(p)), path)
		ctx, parent := p.traces.Tracer("test").Start(t.Context(), "work")

		one, err := first.Lock(t.Context())
		require.NoError(t, err)
		granted := make(chan *lock.Lease)
		go func() {
			two, err := second.Lock(ctx)
			if err != nil {
				t.Error(err)
			}
			granted <- two
		}()
		time.Sleep(3 * time.Second)
		require.Equal(t, series{value: 1, unit: "{wait}"}, p.value("zkrecipes.wait.active", at("lock", path)...))
		require.Equal(t, series{value: 1, unit: "{hold}"}, p.value("zkrecipes.hold.active", at("lock", path)...))
		_, err = second.TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrLocked)
		require.NoError(t, one.Unlock(t.Context()))
		two := <-granted
		parent.End()
		time.Sleep(time.Second)
		require.NoError(t, two.Unlock(t.Context()))
		synctest.Wait()

		require.Equal(t, series{value: 3, count: 2, unit: "s"}, p.value("zkrecipes.wait.duration", at("lock", path)...))
		require.Equal(t, series{value: 4, count: 2, unit: "s"}, p.value("zkrecipes.hold.duration", at("lock", path)...))
		require.EqualValues(t, 1, p.value("zkrecipes.wait.duration", at("lock", path, "error.type", "busy")...).count)
		p.requireIdle()

		waits, holds := p.ended("lock wait"), p.ended("lock hold")
		require.Len(t, waits, 3)
		require.Len(t, holds, 2)
		require.Equal(t, fmt.Sprint(one.Token()), attributesOf(holds[0])["zookeeper.fencing_token"])
		require.Equal(t, fmt.Sprint(two.Token()), attributesOf(holds[1])["zookeeper.fencing_token"])
		links := linksOf(holds[1])
		require.Equal(t, holds[0].SpanContext(), links["previous_holder"].SpanContext)
		require.Equal(t, waits[2].SpanContext(), links["wait"].SpanContext)
		require.Equal(t, parent.SpanContext(), holds[1].Parent())
		require.Equal(t, parent.SpanContext(), waits[2].Parent())
		require.Equal(t, 3*time.Second, waits[2].EndTime().Sub(waits[2].StartTime()))
		require.Equal(t, time.Second, holds[1].EndTime().Sub(holds[1].StartTime()))
		require.Equal(t, codes.Unset, waits[1].Status().Code, "a lock that is taken is no error")
	})
}

// requireIdle checks that nothing is held and nothing waits, in any series.
func (p *probe) requireIdle() {
	p.t.Helper()
	for _, name := range []string{"zkrecipes.wait.active", "zkrecipes.hold.active"} {
		for set, s := range p.measure()[name] {
			require.Zero(p.t, s.value, "%s of %s", name, set.Encoded(attribute.DefaultEncoder()))
		}
	}
	require.Len(p.t, p.spans.Ended(), len(p.spans.Started()), "spans")
}

func TestLossesByCause(t *testing.T) {
	for cause, lose := range map[string]func(t *testing.T, s *recipestest.Server, l *recipestest.Link, c *protocol.Client, m *lock.Mutex){
		"session_lost": func(t *testing.T, s *recipestest.Server, l *recipestest.Link, c *protocol.Client, _ *lock.Mutex) {
			session, err := c.Session(t.Context())
			require.NoError(t, err)
			s.ExpireSession(session.ID())
		},
		"trust_over": func(_ *testing.T, _ *recipestest.Server, l *recipestest.Link, _ *protocol.Client, _ *lock.Mutex) {
			l.Stall()
		},
		"node_deleted": func(t *testing.T, s *recipestest.Server, _ *recipestest.Link, _ *protocol.Client, m *lock.Mutex) {
			line, err := m.Contenders(t.Context())
			require.NoError(t, err)
			require.NoError(t, m.Break(t.Context(), line[0].Node))
		},
		"closed": func(t *testing.T, _ *recipestest.Server, _ *recipestest.Link, c *protocol.Client, _ *lock.Mutex) {
			require.NoError(t, c.Close())
		},
	} {
		t.Run(cause, func(t *testing.T) {
			recipestest.Bubble(t, func(t *testing.T, server *recipestest.Server) {
				p, path, link := newProbe(t), server.Root(t)+"/a", server.Link(t)
				c := link.Client(t, protocol.WithObserver(p), protocol.WithSessionTimeout(timeout))
				m := lock.New(c, path)
				lease, err := m.Lock(t.Context())
				require.NoError(t, err)
				time.Sleep(time.Second)

				lose(t, server, link, c, m)
				<-lease.Done()
				synctest.Wait()
				require.Equal(t, series{value: 1, unit: "{loss}"},
					p.value("zkrecipes.hold.losses", at("lock", path, "error.type", cause)...))
				require.Len(t, p.measure()["zkrecipes.hold.losses"], 1)
				require.EqualValues(t, 1, p.value("zkrecipes.hold.duration", at("lock", path, "error.type", cause)...).count)
				p.requireIdle()

				hold := p.only("lock hold")
				require.Equal(t, cause, attributesOf(hold)["error.type"])
				require.Equal(t, codes.Error, hold.Status().Code)
				require.Equal(t, fmt.Sprint(lease.Token()), attributesOf(hold)["zookeeper.fencing_token"])
			})
		})
	}
}

// A cut is no loss: retries are counted, and the lease stays.
func TestCutConnectionLeadsToRetries(t *testing.T) {
	recipestest.Bubble(t, func(t *testing.T, server *recipestest.Server) {
		p, path, link := newProbe(t), server.Root(t)+"/a", server.Link(t)
		c := link.Client(t, protocol.WithObserver(p), protocol.WithSessionTimeout(timeout))
		lease, err := lock.New(c, path).Lock(t.Context())
		require.NoError(t, err)
		s, err := recipe.SessionOf(t.Context(), c)
		require.NoError(t, err)

		link.LoseReply(recipestest.OpExists, 1)
		_, err = s.Exists(t.Context(), path)
		require.NoError(t, err)
		synctest.Wait()
		retries := 0.0
		for _, s := range p.measure()["zkrecipes.request.retries"] {
			retries += s.value
		}
		require.Positive(t, retries)
		require.NoError(t, lease.Unlock(t.Context()))
		synctest.Wait()
		require.Empty(t, p.measure()["zkrecipes.hold.losses"])
		p.requireIdle()
	})
}

func TestMissingConnectionIsCounted(t *testing.T) {
	recipestest.Bubble(t, func(t *testing.T, server *recipestest.Server) {
		p, link := newProbe(t), server.Link(t)
		link.Client(t, protocol.WithObserver(p), protocol.WithSessionTimeout(timeout))
		link.Cut()
		time.Sleep(1500 * time.Millisecond)
		link.Heal()
		require.Equal(t, series{value: 1, unit: "{report}"}, p.value("zkrecipes.connection.outages", "error.type", "connection"))
	})
}

func TestClientIsObserved(t *testing.T) {
	recipestest.Bubble(t, func(t *testing.T, server *recipestest.Server) {
		p, link := newProbe(t), server.Link(t)
		c := link.Client(t, protocol.WithSessionTimeout(timeout))
		stop, err := p.ObserveClient(c, attribute.String("client", "a"))
		require.NoError(t, err)
		requireState := func(want string) {
			t.Helper()
			for _, state := range []string{"connected", "suspended", "lost", "closed"} {
				value := 0.0
				if state == want {
					value = 1
				}
				require.Equal(t, series{value: value, unit: "{client}"},
					p.value("zkrecipes.client.state", "client", "a", "zookeeper.client.state", state), "%s, and not %s", want, state)
			}
		}
		trust := func() float64 { return p.value("zkrecipes.session.trust", "client", "a").value }

		requireState("connected")
		require.Equal(t, series{value: timeout.Seconds(), unit: "s"}, p.value("zkrecipes.session.timeout", "client", "a"))
		s, err := c.Session(t.Context())
		require.NoError(t, err)
		require.Equal(t, time.Until(s.Deadline()).Seconds(), trust())
		require.Positive(t, trust())

		// The client's own clock ends a session that holds something.
		_, err = lock.New(c, server.Root(t)+"/lock").Lock(t.Context())
		require.NoError(t, err)
		link.Cut()
		synctest.Wait()
		requireState("suspended")
		before := trust()
		time.Sleep(time.Second)
		require.InDelta(t, before-1, trust(), 1e-6)
		<-s.Done()
		requireState("lost")
		require.Equal(t, series{unit: "s"}, p.value("zkrecipes.session.trust", "client", "a"), "there is none, and a graph shows that")
		require.Empty(t, p.measure()["zkrecipes.session.timeout"])

		link.Heal()
		_, err = c.Session(t.Context())
		require.NoError(t, err)
		requireState("connected")
		require.NoError(t, c.Close())
		requireState("closed")
		stop()
		require.Empty(t, p.measure()["zkrecipes.client.state"])
	})
}

func TestQueueIsObserved(t *testing.T) {
	recipestest.Bubble(t, func(t *testing.T, server *recipestest.Server) {
		p, root := newProbe(t), server.Root(t)
		c := server.Client(t, protocol.WithObserver(p), protocol.WithSessionTimeout(timeout))
		dead := queue.New(c, root+"/dead")
		q := queue.New(c, root+"/q", queue.WithDeadLetter(dead, 2))
		for path, q := range map[string]*queue.Queue{"/q": q, "/dead": dead} {
			stop, err := p.ObserveQueue(root+path, q)
			require.NoError(t, err)
			defer stop()
		}

		_, err := q.OfferAll(t.Context(), [][]byte{{1}, {2}, {3}})
		require.NoError(t, err)
		require.Equal(t, series{value: 3, unit: "{entry}"}, p.value("zkrecipes.queue.depth", at("queue", root+"/q")...))
		require.Equal(t, series{value: 0, unit: "{entry}"}, p.value("zkrecipes.queue.depth", at("queue", root+"/dead")...))
		for range 2 {
			it, err := q.Reserve(t.Context())
			require.NoError(t, err)
			require.NoError(t, it.Nack(t.Context()))
		}
		_, err = q.Take(t.Context())
		require.NoError(t, err)
		synctest.Wait()

		total := func(name string) (sum float64) {
			for _, s := range p.measure()[name] {
				sum += s.value
			}
			return sum
		}
		require.EqualValues(t, 1, total("zkrecipes.queue.redelivered"))
		require.EqualValues(t, 1, total("zkrecipes.queue.dead_lettered"))
		require.EqualValues(t, 1, total("zkrecipes.queue.taken"))
		require.EqualValues(t, 3, p.value("zkrecipes.queue.offered", at("queue", root+"/q")...).value)
		require.EqualValues(t, 1, p.value("zkrecipes.queue.depth", at("queue", root+"/q")...).value)
		require.EqualValues(t, 1, p.value("zkrecipes.queue.depth", at("queue", root+"/dead")...).value)
		p.requireIdle()
	})
}

// The SDK would export nothing if a queue that cannot be asked failed the collection.
func TestUnreachableQueueLeavesTheOtherMetrics(t *testing.T) {
	var handled error
	before := otel.GetErrorHandler()
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { handled = errors.Join(handled, err) }))
	defer otel.SetErrorHandler(before)
	recipestest.Bubble(t, func(t *testing.T, server *recipestest.Server) {
		p, link := newProbe(t), server.Link(t)
		c := link.Client(t, protocol.WithSessionTimeout(timeout))
		_, err := p.ObserveClient(c)
		require.NoError(t, err)
		_, err = p.ObserveQueue("/q", queue.New(c, "/q"))
		require.NoError(t, err)

		link.Stall()
		began := time.Now()
		measured := p.measure()
		require.Less(t, time.Since(began), 2*time.Second)
		require.Empty(t, measured["zkrecipes.queue.depth"])
		require.NotEmpty(t, measured["zkrecipes.client.state"])
		require.ErrorContains(t, handled, "zkotel: measure the depth of a queue: queue: /q: ")
		link.Heal()
	})
}

// The client calls the observer in a goroutine that recipes do not wait for.
func TestBlockedExporterDoesNotBlockRecipes(t *testing.T) {
	recipestest.Bubble(t, func(t *testing.T, server *recipestest.Server) {
		exporter := &blockedExporter{tracetest.NewInMemoryExporter(), make(chan struct{})}
		traces := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
		p := newProbe(t, zkotel.WithTracerProvider(traces))
		c := server.Client(t, protocol.WithObserver(p))
		m := lock.New(c, server.Root(t)+"/a")

		for range 100 {
			lease, err := m.Lock(t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Unlock(t.Context()))
		}
		require.Empty(t, exporter.GetSpans())
		p.measure() // a collection does not wait for it either
		close(exporter.gate)
		synctest.Wait()
		require.Len(t, exporter.GetSpans(), 200)
		require.NoError(t, traces.Shutdown(t.Context()))
	})
}

type blockedExporter struct {
	*tracetest.InMemoryExporter
	gate chan struct{}
}

func (e *blockedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	<-e.gate
	return e.InMemoryExporter.ExportSpans(ctx, spans)
}

// Whatever a recipe does, nothing waits and nothing is held when it is over, and all spans have
// ended.
func TestEveryRecipeLeavesNothingActive(t *testing.T) {
	ok := func(t *testing.T, err error) { t.Helper(); require.NoError(t, err) }
	for recipe, use := range map[string]func(t *testing.T, c *protocol.Client, path string){
		"lock": func(t *testing.T, c *protocol.Client, path string) {
			ok(t, lock.New(c, path).Do(t.Context(), func(context.Context, *lock.Lease) error { return nil }))
			ok(t, lock.NewSimple(c, path+"/simple").Do(t.Context(), func(context.Context, *lock.Lease) error { return nil }))
			local := lock.New(c, path+"/local", lock.WithLocalQueue())
			ok(t, local.Do(t.Context(), func(ctx context.Context, _ *lock.Lease) error {
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_, err := local.Lock(short)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				return nil
			}))
		},
		"rwlock": func(t *testing.T, c *protocol.Client, path string) {
			m := rwlock.New(c, path)
			w, err := m.Lock(t.Context())
			ok(t, err)
			r, err := w.Downgrade(t.Context())
			ok(t, err)
			ok(t, r.Unlock(t.Context()))

			shared := rwlock.New(c, path+"/shared", rwlock.WithLocalSharing())
			a, err := shared.RLock(t.Context())
			ok(t, err)
			b, err := shared.RLock(t.Context())
			ok(t, err)
			ok(t, errors.Join(a.Unlock(t.Context()), b.Unlock(t.Context())))
		},
		"semaphore": func(t *testing.T, c *protocol.Client, path string) {
			s := semaphore.New(c, path, 1)
			permit, err := s.Acquire(t.Context())
			ok(t, err)
			_, err = s.TryAcquire(t.Context())
			require.ErrorIs(t, err, semaphore.ErrNoPermit)
			ok(t, permit.Release(t.Context()))
		},
		"election": func(t *testing.T, c *protocol.Client, path string) {
			term, err := election.New(c, path).Campaign(t.Context(), []byte("x"))
			ok(t, err)
			ok(t, term.Resign(t.Context()))
		},
		"group": func(t *testing.T, c *protocol.Client, path string) {
			g := group.New(c, path)
			m, err := g.Join(t.Context(), "x", nil)
			ok(t, err)
			_, err = g.Await(t.Context(), 1)
			ok(t, err)
			ok(t, m.Leave(t.Context()))
		},
		"once": func(t *testing.T, c *protocol.Client, path string) {
			_, err := once.New(c, path).Do(t.Context(), "x", func(context.Context, *once.Run) error { return nil })
			ok(t, err)
		},
		"queue": func(t *testing.T, c *protocol.Client, path string) {
			q := queue.New(c, path, queue.WithMaxLength(2))
			_, err := q.OfferWait(t.Context(), []byte("x"))
			ok(t, err)
			_, err = q.Offer(t.Context(), []byte("y"))
			ok(t, err)
			it, err := q.Reserve(t.Context())
			ok(t, err)
			ok(t, it.Ack(t.Context()))
			_, err = q.Take(t.Context())
			ok(t, err)
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = q.Take(short)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		},
		"barrier": func(t *testing.T, c *protocol.Client, path string) {
			b := barrier.New(c, path)
			ok(t, b.Set(t.Context()))
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorIs(t, b.Wait(short), context.DeadlineExceeded)
			ok(t, b.Remove(t.Context()))
			ok(t, b.Wait(t.Context()))
		},
		"doublebarrier": func(t *testing.T, c *protocol.Client, path string) {
			ok(t, doublebarrier.New(c, path, 1).Do(t.Context(), func(context.Context, *doublebarrier.Entry) error { return nil }))
		},
	} {
		t.Run(recipe, func(t *testing.T) {
			recipestest.Bubble(t, func(t *testing.T, server *recipestest.Server) {
				p := newProbe(t)
				use(t, server.Client(t, protocol.WithObserver(p)), server.Root(t)+"/a")
				synctest.Wait()
				p.requireIdle()
				require.NotEmpty(t, p.measure()["zkrecipes.wait.duration"])
			})
		})
	}
}
