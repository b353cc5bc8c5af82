package zkotel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	zkotel "github.com/zkrecipes/zkrecipes/otel"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// timeout is the session timeout of the clients here.
const timeout = 4 * time.Second

// A program is a client with a lock and a queue, which a probe observes.
type program struct {
	*probe
	ctx    context.Context // for calls that must return
	server *recipestest.Server
	link   *recipestest.Link
	client *protocol.Client
	path   string // of the lock
	lock   *lock.Mutex
	queue  *queue.Queue
	out    strings.Builder
}

// observed runs a test of a program in a bubble.
func observed(t *testing.T, test func(t *testing.T, p *program), opts ...zkotel.Option) {
	t.Helper()
	recipestest.Bubble(t, func(t *testing.T, server *recipestest.Server) {
		p := &program{probe: newProbe(t, opts...), ctx: suite.Lasting(t), server: server, link: server.Link(t), path: server.Root(t)}
		p.client = p.link.Client(t, protocol.WithObserver(p), protocol.WithSessionTimeout(timeout))
		p.lock, p.queue = lock.New(p.client, p.path), queue.New(p.client, p.path)
		test(t, p)
	})
}

// told waits until nothing more happens, and writes what was measured since it was last called.
func (p *program) told(what string) {
	p.t.Helper()
	synctest.Wait()
	fmt.Fprintf(&p.out, "> %s\n%s", what, p.changes())
}

var (
	// name matches what has another name in each run.
	name = regexp.MustCompile(`0x\w+|(fencing_token=)\w+|\w+-\w+-lock-\w+`)

	// fraction matches the part of a time that differs.
	fraction = regexp.MustCompile(`[.\d]+([mµn]|e-\d+)s|\.\d+s`)
)

// text returns what was told. Names have numbers instead, and times whole seconds.
func (p *program) text() string {
	var seen []string
	text := strings.ReplaceAll(p.out.String(), p.path, "/path")
	text = name.ReplaceAllStringFunc(text, func(found string) string {
		if !slices.Contains(seen, found) {
			seen = append(seen, found)
		}
		return name.ReplaceAllString(found, "${1}#") + fmt.Sprint(slices.Index(seen, found))
	})
	return fraction.ReplaceAllStringFunc(text, func(found string) string {
		return map[bool]string{true: "s", false: "0s"}[found[0] == '.']
	})
}

// What a program does with recipes, and what is measured.
func TestProgramsHaveTheirTranscript(t *testing.T) {
	lost := func(lose func(t *testing.T, p *program)) func(t *testing.T, p *program) {
		return func(t *testing.T, p *program) {
			lease := suite.Got(p.lock.Lock(p.ctx))(t)
			time.Sleep(time.Second)
			p.told("lock")
			lose(t, p)
			suite.Wait(t, lease.Done())
			p.told("lose it")
		}
	}

	var out strings.Builder
	for _, story := range []struct {
		name string
		play func(t *testing.T, p *program)
	}{
		{"A contended lock", func(t *testing.T, p *program) {
			second := lock.New(p.server.Client(t, protocol.WithObserver(p)), p.path)
			ctx, parent := p.traces.Tracer("test").Start(p.ctx, "work")
			one := suite.Got(p.lock.Lock(p.ctx))(t)
			p.told("one locks")
			granted := suite.Later(func() *lock.Lease {
				two, err := second.Lock(ctx)
				assert.NoError(t, err)
				return two
			})
			time.Sleep(3 * time.Second)
			p.told("two waits")
			require.ErrorIs(t, suite.Err(second.TryLock(p.ctx)), lock.ErrLocked)
			p.told("two tries")
			require.NoError(t, one.Unlock(p.ctx))
			two := suite.Wait(t, granted)
			p.told("one unlocks")
			parent.End()
			time.Sleep(time.Second)
			require.NoError(t, two.Unlock(p.ctx))
			p.told("two unlocks")
		}},
		{"A lock that lingers is held by its leases", func(t *testing.T, p *program) {
			m := lock.New(p.client, p.path, lock.WithLinger(time.Minute))
			for range 2 {
				l := suite.Got(m.Lock(p.ctx))(t)
				p.told("lock")
				require.NoError(t, l.Unlock(p.ctx))
				p.told("unlock")
			}
		}},
		{"An expired session", lost(func(t *testing.T, p *program) {
			session := suite.Got(p.client.Session(p.ctx))(t)
			p.server.ExpireSession(session.ID())
		})},
		{"Silent servers", lost(func(_ *testing.T, p *program) { p.link.Stall() })},
		{"A deleted node", lost(func(t *testing.T, p *program) {
			line := suite.Got(p.lock.Contenders(p.ctx))(t)
			require.NoError(t, p.lock.Break(p.ctx, line[0].Node))
		})},
		{"A closed client", lost(func(t *testing.T, p *program) { require.NoError(t, p.client.Close()) })},
		{"A lost reply is no loss", func(t *testing.T, p *program) {
			lease := suite.Got(p.lock.Lock(p.ctx))(t)
			p.told("lock")
			s := suite.Got(recipe.SessionOf(p.ctx, p.client))(t)
			p.link.LoseReply(recipestest.OpExists, 1)
			suite.Got(s.Exists(p.ctx, p.path))(t)
			p.told("lose a reply")
			require.NoError(t, lease.Unlock(p.ctx))
			p.told("unlock")
		}},
		{"A queue", func(t *testing.T, p *program) {
			stop := suite.Got(p.ObserveQueue(p.path, p.queue))(t)
			p.told("observe the queue")
			suite.Got(p.queue.OfferAll(p.ctx, [][]byte{{1}, {2}, {3}}))(t)
			p.told("offer three")
			suite.Got(p.queue.Take(p.ctx))(t)
			p.told("take one")
			stop()
			p.told("stop observing")
		}},
	} {
		t.Run(story.name, func(t *testing.T) {
			observed(t, func(t *testing.T, p *program) {
				story.play(t, p)
				fmt.Fprintf(&out, "## %s\n\n%s\n", story.name, p.text())
			})
		})
	}
	requireGolden(t, "programs.txt", out.String())
}

// The file has each instrument. The documentation of the package names them, too.
func TestInstrumentsAreDescribed(t *testing.T) {
	observed(t, func(t *testing.T, p *program) {
		suite.Got(p.ObserveClient(p.client))(t)
		suite.Got(p.ObserveQueue("/q", p.queue))(t)
		for kind := protocol.EventKind(1); kind.String() != "unknown"; kind++ {
			p.Observe(protocol.Event{Kind: kind, Context: p.ctx, Token: 1, Err: map[bool]error{true: errors.New("lost")}[kind == protocol.EventLost]})
		}
		p.measure()

		var all strings.Builder
		doc := suite.Got(os.ReadFile("doc.go"))(t)
		for _, name := range slices.Sorted(maps.Keys(p.instruments)) {
			all.WriteString(p.instruments[name])
			unit := strings.Fields(p.instruments[name])[1]
			require.Regexp(t, `(?m)^//\t`+regexp.QuoteMeta(name)+` +`+regexp.QuoteMeta(unit)+` `, string(doc))
			requireRefusal(t, name, strings.Contains(p.instruments[name], "\tgauge\n"))
		}
		requireGolden(t, "instruments.txt", all.String())
	})
}

func TestClientIsObserved(t *testing.T) {
	observed(t, func(t *testing.T, p *program) {
		stop := suite.Got(p.ObserveClient(p.client, attribute.String("client", "a")))(t)
		// requireState compares what is measured, which takes no time. The trust is compared up to
		// rounding.
		requireState := func(want string, s *protocol.Session) {
			t.Helper()
			all := map[string]string{`zkrecipes.session.trust{client="a"}`: "0"}
			for _, state := range []string{"connected", "suspended", "lost", "closed"} {
				all[fmt.Sprintf("zkrecipes.client.state{client=%q zookeeper.client.state=%q}", "a", state)] =
					map[bool]string{true: "1", false: "0"}[state == want]
			}
			if s != nil {
				all[`zkrecipes.session.trust{client="a"}`] = fmt.Sprint(time.Until(s.Deadline()).Seconds())
				all[`zkrecipes.session.timeout{client="a"}`] = fmt.Sprint(timeout.Seconds())
				all[`zkrecipes.session.ephemeral{client="a"}`] = fmt.Sprint(s.EphemeralBytes())
			}
			began := time.Now()
			measured := p.of("zkrecipes.client")
			maps.Copy(measured, p.of("zkrecipes.session"))
			require.Equal(t, all, measured)
			require.Zero(t, time.Since(began), "a collection waits for no session")
		}

		s := suite.Got(p.client.Session(p.ctx))(t)
		requireState("connected", s)
		// The client's own clock ends a session that holds something.
		suite.Got(p.lock.Lock(p.ctx))(t)
		require.Positive(t, s.EphemeralBytes())
		requireState("connected", s)
		p.link.Cut()
		synctest.Wait()
		requireState("suspended", s)
		time.Sleep(time.Second)
		requireState("suspended", s)
		suite.Wait(t, s.Done())
		requireState("lost", nil) // there is no trust, and a graph shows that
		p.link.Heal()
		s = suite.Got(p.client.Session(p.ctx))(t)
		requireState("connected", s)
		require.NoError(t, p.client.Close())
		requireState("closed", nil)
		stop()
		require.Empty(t, p.of("zkrecipes.client"))
	})
}

// The SDK would export nothing if a queue that cannot be asked failed the collection.
func TestUnreachableQueueLeavesTheOtherMetrics(t *testing.T) {
	handled := make(chan error, 10)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { handled <- err }))
	defer otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	observed(t, func(t *testing.T, p *program) {
		suite.Got(p.ObserveClient(p.client))(t)
		suite.Got(p.ObserveQueue("/q", queue.New(p.client, "/q")))(t)
		suite.Got(p.ObserveQueue("/silent", queueFunc(func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })))(t)
		s := suite.Got(p.client.Session(p.ctx))(t)

		// The trust ends while the queues are asked.
		p.link.Stall()
		time.Sleep(time.Until(s.Deadline()) - 500*time.Millisecond)
		began := time.Now()
		measured := p.measure()
		require.Less(t, time.Since(began), 2*time.Second)
		require.Equal(t, "0", measured["zkrecipes.session.trust{}"])
		require.NotContains(t, measured, `zkrecipes.queue.depth{zookeeper.path="/q" zookeeper.recipe="queue"}`)
		require.Len(t, handled, 2)
		require.Contains(t, fmt.Sprint(<-handled, <-handled), "zkotel: measure the depth of a queue: queue: /q: ")
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
			lease := suite.Got(p.lock.Lock(p.ctx))(t)
			require.NoError(t, lease.Unlock(p.ctx))
		}
		require.Empty(t, exporter.GetSpans())
		p.measure() // a collection does not wait for it either
		close(exporter.gate)
		synctest.Wait()
		require.Len(t, exporter.GetSpans(), 200)
		require.NoError(t, traces.Shutdown(p.ctx))
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
