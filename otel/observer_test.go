package zkotel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.yaml.in/yaml/v3"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	zkotel "github.com/zkrecipes/zkrecipes/otel"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// Whatever an observer does with an event is in the file: a statement that is left out, another
// name or another number changes it.
func TestEventsHaveTheirTranscript(t *testing.T) {
	const name = "events.txt"
	text := suite.Got(os.ReadFile("testdata/" + name))(t)

	var got strings.Builder
	var f *feed
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "\t") {
			continue // what the observer did when the file was written
		}
		if strings.HasPrefix(line, "## ") {
			f = newFeed(t)
		}
		got.WriteString(line)
		if event, ok := strings.CutPrefix(line, "> "); ok {
			f.play(event)
			got.WriteString(f.changes())
		}
	}
	requireGolden(t, name, got.String())
}

// A feed makes events for a probe, without a client.
type feed struct {
	*probe
	opts []zkotel.Option
	now  time.Time
	work context.Context // has a span, and has ended
}

func newFeed(t testing.TB, opts ...zkotel.Option) *feed {
	f := &feed{probe: newProbe(t, opts...), opts: opts}
	f.now = f.zero
	return f
}

type busy bool

func (busy) Error() string { return "busy" }

func (b busy) Busy() bool { return bool(b) }

var (
	failures = map[string]error{
		"": nil, "busy": busy(true), "not busy": busy(false), "canceled": context.Canceled, "timeout": context.DeadlineExceeded,
		"uncertain": protocol.ErrUncertain, "too large": protocol.ErrTooLarge, "exhausted": protocol.ErrSequenceExhausted,
		"mixed": protocol.ErrMixed, "no auth": zk.ErrNoAuth, "auth failed": zk.ErrAuthFailed,
		"connection closed": zk.ErrConnectionClosed, "closing": zk.ErrClosing, "no server": zk.ErrNoServer,
		"session expired": zk.ErrSessionExpired, "EOF": io.EOF, "unexpected EOF": io.ErrUnexpectedEOF,
		"net": &net.DNSError{Err: "no such host"}, "expired": protocol.ErrLost,
		"deleted":   errors.Join(protocol.ErrLost, protocol.ErrNodeDeleted),
		"untrusted": errors.Join(protocol.ErrLost, protocol.ErrUntrusted), "closed": protocol.ErrClosed,
	}
	options = map[string]zkotel.Option{
		"attributes": zkotel.WithAttributes(attribute.String("ensemble", "east"), attribute.Int("zone", 2)),
		"pattern": zkotel.WithPathAttribute(func(path string) string {
			return map[string]string{"/a": "/*"}[path]
		}),
	}
)

// play plays a line: "with OPTION", or the kind of an event and its fields. The field clock moves
// the clock. The field in names a span of the caller's context, which has ended.
func (f *feed) play(line string) {
	f.t.Helper()
	kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if kind == "with" {
		*f = *newFeed(f.t, append(f.opts, options[rest])...)
		return
	}

	e := struct {
		protocol.Event `yaml:",inline"`
		Error, In      string
		Clock          time.Duration
	}{Event: protocol.Event{Kind: 1, Context: f.t.Context(), Recipe: "lock", Path: "/a", Session: 1}, Clock: time.Second}
	for e.Kind.String() != kind {
		e.Kind++
	}
	require.NoError(f.t, yaml.Unmarshal([]byte(rest), &e))
	require.Contains(f.t, failures, e.Error, line)
	e.Err = failures[e.Error]
	f.now = f.now.Add(e.Clock)
	if e.In != "" {
		e.Context = f.caller(e.In)
	}
	e.Time = f.now
	f.Observe(e.Event)
}

// caller returns a context that has ended, with a span.
func (f *feed) caller(name string) context.Context {
	if f.work == nil {
		ctx, span := f.traces.Tracer("test").Start(f.t.Context(), name, trace.WithTimestamp(f.now))
		span.End(trace.WithTimestamp(f.now))
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		f.work = ctx
	}
	return f.work
}

func (f *feed) event(kind protocol.EventKind, path string, token int64, err error) {
	f.now = f.now.Add(time.Second)
	f.Observe(protocol.Event{Kind: kind, Time: f.now, Context: context.Background(), Path: path, Session: 1, Token: token, Err: err})
}

func TestBadOptionsAreRefused(t *testing.T) {
	var bad attribute.KeyValue
	for what, option := range map[string]zkotel.Option{
		"the meter provider is nil": zkotel.WithMeterProvider(nil), "the tracer provider is nil": zkotel.WithTracerProvider(nil),
		"an attribute has no key or no value": zkotel.WithAttributes(bad), "the function for the path attribute is nil": zkotel.WithPathAttribute(nil),
	} {
		require.EqualError(t, suite.Err(zkotel.New(option)), "zkotel: configure the observer: "+what)
	}

	o := suite.Got(zkotel.New(nil))(t)
	require.EqualError(t, suite.Err(o.ObserveClient(nil)), "zkotel: observe a client: it is nil")
	require.EqualError(t, suite.Err(o.ObserveQueue("/q", nil)), "zkotel: observe the queue at /q: it is nil")
	o.Observe(protocol.Event{Kind: protocol.EventAcquired, Context: t.Context()}) // with the global providers

	given := []attribute.KeyValue{attribute.String("ensemble", "east")}
	option := zkotel.WithAttributes(given...)
	given[0] = bad
	require.NoError(t, suite.Err(zkotel.New(option)), "the option has attributes of its own")
	_, err := zkotel.New(zkotel.WithMeterProvider(meters{}))
	require.EqualError(t, err, "zkotel: register the gauges: no callbacks")
}

// A meter refuses to register a callback.
type meter struct{ metric.Meter }

func (meter) RegisterCallback(metric.Callback, ...metric.Observable) (metric.Registration, error) {
	return nil, errors.New("no callbacks")
}

type meters struct{ metric.MeterProvider }

func (meters) Meter(string, ...metric.MeterOption) metric.Meter { return meter{metricnoop.Meter{}} }

// requireRefusal requires an error for an instrument that the meter provider refuses.
func requireRefusal(t *testing.T, name string, gauge bool) {
	unfit := map[bool]sdkmetric.Aggregation{true: sdkmetric.AggregationSum{}, false: sdkmetric.AggregationLastValue{}}[gauge]
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()),
		sdkmetric.WithView(sdkmetric.NewView(sdkmetric.Instrument{Name: name}, sdkmetric.Stream{Aggregation: unfit})))
	_, err := zkotel.New(zkotel.WithMeterProvider(provider))
	require.ErrorContains(t, err, "zkotel: make the instruments: ", name)
}

// Without bounds an observer that misses events would grow for ever.
func TestHoldsThatAreFollowedAreBounded(t *testing.T) {
	f := newFeed(t, zkotel.WithTracerProvider(noop.NewTracerProvider()))
	const limit, beyond = 1 << 16, 100
	held := func() string { return f.measure()["zkrecipes.hold.active{}"] }
	acquire := func(from, to int64) {
		for token := from; token <= to; token++ {
			f.event(protocol.EventAcquired, "", token, nil)
		}
	}

	acquire(1, limit+beyond)
	require.Equal(t, fmt.Sprint(limit), held())
	f.event(protocol.EventReleased, "", limit+beyond, nil) // which counts all the same
	require.Contains(t, f.measure()["zkrecipes.hold.duration{}"], "1 of ")
	require.Equal(t, fmt.Sprint(limit), held())
	f.event(protocol.EventReleased, "", 1, nil)
	acquire(limit+beyond, limit+beyond)
	require.Equal(t, fmt.Sprint(limit), held())

	f.event(protocol.EventLost, "", 2, protocol.ErrLost) // and with it all others of the session
	require.Equal(t, "0", held())
	acquire(2*limit, 3*limit+beyond)
	require.Equal(t, fmt.Sprint(limit), held(), "there is room again")
}

func TestLossesWhoseBeginningNeverComesAreBounded(t *testing.T) {
	f := newFeed(t, zkotel.WithTracerProvider(noop.NewTracerProvider()))
	const limit, beyond = 1 << 16, 100
	// Those of the first round come, and leave their room.
	for round, losses := range []int64{limit, limit + beyond} {
		for _, kind := range []protocol.EventKind{protocol.EventLost, protocol.EventAcquired} {
			for token := range losses {
				f.event(kind, fmt.Sprint(round), 1+token, map[bool]error{true: failures["deleted"]}[kind == protocol.EventLost])
			}
		}
	}
	held := f.of("zkrecipes.hold.active")
	require.NotContains(t, held, `zkrecipes.hold.active{zookeeper.path="0"}`)
	require.Equal(t, fmt.Sprint(beyond), held[`zkrecipes.hold.active{zookeeper.path="1"}`], "of which the losses are forgotten")
}

// A program can lock a path for each of its customers. As many as fit are remembered.
func TestPathsThatAreRememberedAreBounded(t *testing.T) {
	const limit = 1 << 12
	for _, paths := range []int{limit, limit + 1} {
		f := newFeed(t)
		for token := range int64(2) {
			for path := range paths {
				f.event(protocol.EventAcquired, fmt.Sprint(path), 1+token, nil)
				f.event(protocol.EventReleased, fmt.Sprint(path), 1+token, nil)
			}
		}

		linked := 0
		for _, span := range f.spans.Ended() {
			linked += max(0, len(span.Links())-1)
		}
		require.Equal(t, paths == limit, linked == paths, "%d of %d", linked, paths)
	}
}

// What is over leaves nothing: neither a hold, nor a session, nor a loss whose beginning has come.
func TestFormerHoldsTakeNoMemory(t *testing.T) {
	f := newFeed(t, zkotel.WithTracerProvider(noop.NewTracerProvider()))
	const cycles = 50_000
	used := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	f.event(protocol.EventAcquired, "", 1, nil)
	before := used()
	for session := range int64(cycles) {
		for _, kind := range []protocol.EventKind{protocol.EventAcquired, protocol.EventReleased} {
			f.Observe(protocol.Event{Kind: kind, Context: t.Context(), Session: 2 + session, Token: 1})
		}
	}
	require.Less(t, used()-before, int64(cycles*8), "bytes")
	runtime.KeepAlive(f)
}

type queueFunc func(context.Context) (int, error)

func (f queueFunc) Len(ctx context.Context) (int, error) { return f(ctx) }

func TestQueuesThatDoNotAnswerDelayACollectionByASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbe(t)
		asked := make(chan context.Context, 4)
		slow := queueFunc(func(ctx context.Context) (int, error) { asked <- ctx; <-ctx.Done(); return 0, ctx.Err() })
		for _, path := range []string{"/a", "/b", "/c"} {
			stop := suite.Got(p.ObserveQueue(path, slow))(t)
			defer stop()
		}
		ready := queueFunc(func(ctx context.Context) (int, error) { asked <- ctx; return 5, nil })
		stop := suite.Got(p.ObserveQueue("/ready", ready))(t)

		began := time.Now()
		require.Equal(t, map[string]string{`zkrecipes.queue.depth{zookeeper.path="/ready" zookeeper.recipe="queue"}`: "5"}, p.measure())
		require.Equal(t, time.Second, time.Since(began))
		require.Len(t, asked, 4)
		stop()
		for range 4 {
			<-asked
		}
		require.Empty(t, p.measure())
	})
}

// A queue can have started something that ends with the context.
func TestContextOfACollectionEndsWithIt(t *testing.T) {
	p := newProbe(t)
	var asked context.Context
	suite.Got(p.ObserveQueue("/a", queueFunc(func(ctx context.Context) (int, error) { asked = ctx; return 1, ctx.Err() })))(t)
	require.Len(t, p.measure(), 1)
	require.ErrorIs(t, asked.Err(), context.Canceled)
}
