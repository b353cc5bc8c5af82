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

	"github.com/zkrecipes/zkrecipes/lock"
	zkotel "github.com/zkrecipes/zkrecipes/otel"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// timeout is the session timeout of the clients here.
const timeout = 4 * time.Second

// A program is a client with a lock, both of which a probe observes.
type program struct {
	*probe
	server *recipestest.Server
	link   *recipestest.Link
	client *protocol.Client
	path   string // of the lock
	lock   *lock.Mutex
}

// observed runs a test of a program in a bubble.
func observed(t *testing.T, test func(t *testing.T, p *program), opts ...zkotel.Option) {
	t.Helper()
	recipestest.Bubble(t, func(t *testing.T, server *recipestest.Server) {
		p := &program{probe: newProbe(t, opts...), server: server, link: server.Link(t), path: server.Root(t) + "/a"}
		p.client = p.link.Client(t, protocol.WithObserver(p), protocol.WithSessionTimeout(timeout))
		p.lock = lock.New(p.client, p.path)
		test(t, p)
	})
}

func TestContendedLock(t *testing.T) {
	observed(t, func(t *testing.T, p *program) {
		path := p.path
		second := lock.New(p.server.Client(t, protocol.WithObserver(p)), path)
		ctx, parent := p.traces.Tracer("test").Start(t.Context(), "work")

		one, err := p.lock.Lock(t.Context())
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
		require.Equal(t, fmt.Sprint(two.Token()), attributesOf(holds[1])["zookeeper.fencing_token"])
		require.Equal(t, parent.SpanContext(), holds[1].Parent())
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

// The node stays, and is not held between the leases.
func TestLockThatLingersIsHeldByItsLeases(t *testing.T) {
	observed(t, func(t *testing.T, p *program) {
		path := p.path
		m := lock.New(p.client, path, lock.WithLinger(time.Minute))
		for n := 1; n <= 3; n++ {
			l, err := m.Lock(t.Context())
			require.NoError(t, err)
			synctest.Wait()
			require.EqualValues(t, 1, p.value("zkrecipes.hold.active", at("lock", path)...).value)
			require.EqualValues(t, n, p.value("zkrecipes.wait.duration", at("lock", path)...).count)
			require.NoError(t, l.Unlock(t.Context()))
			synctest.Wait()
			require.Zero(t, p.value("zkrecipes.hold.active", at("lock", path)...).value)
		}
		require.EqualValues(t, 3, p.value("zkrecipes.hold.duration", at("lock", path)...).count)
	})
}

func TestLossesByCause(t *testing.T) {
	for cause, lose := range map[string]func(t *testing.T, p *program){
		"session_lost": func(t *testing.T, p *program) {
			session, err := p.client.Session(t.Context())
			require.NoError(t, err)
			p.server.ExpireSession(session.ID())
		},
		"trust_over": func(_ *testing.T, p *program) { p.link.Stall() },
		"node_deleted": func(t *testing.T, p *program) {
			line, err := p.lock.Contenders(t.Context())
			require.NoError(t, err)
			require.NoError(t, p.lock.Break(t.Context(), line[0].Node))
		},
		"closed": func(t *testing.T, p *program) { require.NoError(t, p.client.Close()) },
	} {
		t.Run(cause, func(t *testing.T) {
			observed(t, func(t *testing.T, p *program) {
				lease, err := p.lock.Lock(t.Context())
				require.NoError(t, err)
				time.Sleep(time.Second)

				lose(t, p)
				<-lease.Done()
				synctest.Wait()
				require.Equal(t, series{value: 1, unit: "{loss}"},
					p.value("zkrecipes.hold.losses", at("lock", p.path, "error.type", cause)...))
				require.Len(t, p.measure()["zkrecipes.hold.losses"], 1)
				require.EqualValues(t, 1,
					p.value("zkrecipes.hold.duration", at("lock", p.path, "error.type", cause)...).count)
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
	observed(t, func(t *testing.T, p *program) {
		lease, err := p.lock.Lock(t.Context())
		require.NoError(t, err)
		s, err := recipe.SessionOf(t.Context(), p.client)
		require.NoError(t, err)

		p.link.LoseReply(recipestest.OpExists, 1)
		_, err = s.Exists(t.Context(), p.path)
		require.NoError(t, err)
		synctest.Wait()
		require.Positive(t, p.sum("zkrecipes.request.retries"))
		require.NoError(t, lease.Unlock(t.Context()))
		synctest.Wait()
		require.Empty(t, p.measure()["zkrecipes.hold.losses"])
		p.requireIdle()
	})
}

func TestMissingConnectionIsCounted(t *testing.T) {
	observed(t, func(t *testing.T, p *program) {
		p.link.Cut()
		time.Sleep(1500 * time.Millisecond)
		p.link.Heal()
		require.Equal(t, series{value: 1, unit: "{report}"}, p.value("zkrecipes.connection.outages", "error.type", "connection"))
	})
}

func TestClientIsObserved(t *testing.T) {
	observed(t, func(t *testing.T, p *program) {
		c, link := p.client, p.link
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
		_, err = p.lock.Lock(t.Context())
		require.NoError(t, err)
		size := p.value("zkrecipes.session.ephemeral", "client", "a")
		require.Equal(t, series{value: float64(s.EphemeralBytes()), unit: "By"}, size)
		require.Positive(t, size.value)
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
	observed(t, func(t *testing.T, p *program) {
		q := queue.New(p.client, p.path)
		stop, err := p.ObserveQueue(p.path, q)
		require.NoError(t, err)
		depth := func() series { return p.value("zkrecipes.queue.depth", at("queue", p.path)...) }

		require.Equal(t, series{unit: "{entry}"}, depth())
		_, err = q.OfferAll(t.Context(), [][]byte{{1}, {2}, {3}})
		require.NoError(t, err)
		require.Equal(t, series{value: 3, unit: "{entry}"}, depth())
		_, err = q.Take(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		require.EqualValues(t, 2, depth().value)
		require.EqualValues(t, 3, p.value("zkrecipes.queue.offered", at("queue", p.path)...).value)
		require.EqualValues(t, 1, p.value("zkrecipes.queue.taken", at("queue", p.path)...).value)
		p.requireIdle()
		stop()
		require.Empty(t, p.measure()["zkrecipes.queue.depth"])
	})
}

// The SDK would export nothing if a queue that cannot be asked failed the collection.
func TestUnreachableQueueLeavesTheOtherMetrics(t *testing.T) {
	var handled error
	before := otel.GetErrorHandler()
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { handled = errors.Join(handled, err) }))
	defer otel.SetErrorHandler(before)
	observed(t, func(t *testing.T, p *program) {
		_, err := p.ObserveClient(p.client)
		require.NoError(t, err)
		_, err = p.ObserveQueue("/q", queue.New(p.client, "/q"))
		require.NoError(t, err)

		p.link.Stall()
		began := time.Now()
		measured := p.measure()
		require.Less(t, time.Since(began), 2*time.Second)
		require.Empty(t, measured["zkrecipes.queue.depth"])
		require.NotEmpty(t, measured["zkrecipes.client.state"])
		require.ErrorContains(t, handled, "zkotel: measure the depth of a queue: queue: /q: ")
		p.link.Heal()
	})
}

// The client calls the observer in a goroutine that recipes do not wait for.
func TestBlockedExporterDoesNotBlockRecipes(t *testing.T) {
	exporter := &blockedExporter{tracetest.NewInMemoryExporter(), nil}
	traces := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	observed(t, func(t *testing.T, p *program) {
		exporter.gate = make(chan struct{}) // of the bubble
		for range 100 {
			lease, err := p.lock.Lock(t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Unlock(t.Context()))
		}
		require.Empty(t, exporter.GetSpans())
		p.measure() // a collection does not wait for it either
		close(exporter.gate)
		synctest.Wait()
		require.Len(t, exporter.GetSpans(), 200)
		require.NoError(t, traces.Shutdown(t.Context()))
	}, zkotel.WithTracerProvider(traces))
}

type blockedExporter struct {
	*tracetest.InMemoryExporter
	gate chan struct{}
}

func (e *blockedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	<-e.gate
	return e.InMemoryExporter.ExportSpans(ctx, spans)
}
