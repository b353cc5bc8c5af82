package zkotel_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"

	zkotel "github.com/zkrecipes/zkrecipes/otel"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// A probe is an observer with an SDK behind it.
type probe struct {
	*zkotel.Observer
	t      testing.TB
	reader *sdkmetric.ManualReader
	spans  *tracetest.SpanRecorder
	traces *sdktrace.TracerProvider
}

func newProbe(t testing.TB, opts ...zkotel.Option) *probe {
	t.Helper()
	p := &probe{t: t, reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	p.traces = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(p.spans))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(p.reader))
	t.Cleanup(func() {
		require.NoError(t, errors.Join(meters.Shutdown(context.Background()), p.traces.Shutdown(context.Background())))
	})

	var err error
	p.Observer, err = zkotel.New(append([]zkotel.Option{
		zkotel.WithMeterProvider(meters), zkotel.WithTracerProvider(p.traces),
	}, opts...)...)
	require.NoError(t, err)
	return p
}

// A series has what is measured for one set of attributes.
type series struct {
	value float64 // of a counter or gauge; the sum of a histogram
	count uint64  // of a histogram
	unit  string
}

// measure collects all metrics: by name, and then by attributes.
func (p *probe) measure() map[string]map[attribute.Set]series {
	p.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(p.t, p.reader.Collect(context.Background(), &all))

	found := make(map[string]map[attribute.Set]series)
	for _, scope := range all.ScopeMetrics {
		require.Equal(p.t, "github.com/zkrecipes/zkrecipes/otel", scope.Scope.Name)
		for _, m := range scope.Metrics {
			require.NotEmpty(p.t, m.Description, m.Name)
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				found[m.Name] = values(m, data.DataPoints)
			case metricdata.Gauge[int64]:
				found[m.Name] = values(m, data.DataPoints)
			case metricdata.Gauge[float64]:
				found[m.Name] = values(m, data.DataPoints)
			case metricdata.Histogram[float64]:
				of := make(map[attribute.Set]series)
				for _, d := range data.DataPoints {
					of[d.Attributes] = series{value: d.Sum, count: d.Count, unit: m.Unit}
				}
				found[m.Name] = of
			default:
				require.Failf(p.t, "unknown data", "%s: %T", m.Name, data)
			}
		}
	}
	return found
}

// values returns the series of a counter or gauge.
func values[N int64 | float64](m metricdata.Metrics, points []metricdata.DataPoint[N]) map[attribute.Set]series {
	of := make(map[attribute.Set]series)
	for _, d := range points {
		of[d.Attributes] = series{value: float64(d.Value), unit: m.Unit}
	}
	return of
}

// value returns what a metric is for these attributes, given as keys and values.
func (p *probe) value(metric string, attributes ...string) series {
	p.t.Helper()
	return p.measure()[metric][labels(attributes...)]
}

func labels(attributes ...string) attribute.Set {
	var all []attribute.KeyValue
	for i := 0; i < len(attributes); i += 2 {
		all = append(all, attribute.String(attributes[i], attributes[i+1]))
	}
	return attribute.NewSet(all...)
}

// at returns the attributes of a path's metrics.
func at(recipe, path string, more ...string) []string {
	return append([]string{"zookeeper.recipe", recipe, "zookeeper.path", path}, more...)
}

// ended returns the spans of that name that have ended, in that order.
func (p *probe) ended(name string) (found []sdktrace.ReadOnlySpan) {
	for _, s := range p.spans.Ended() {
		if s.Name() == name {
			found = append(found, s)
		}
	}
	return found
}

func (p *probe) only(name string) sdktrace.ReadOnlySpan {
	p.t.Helper()
	found := p.ended(name)
	require.Len(p.t, found, 1, name)
	return found[0]
}

func attributesOf(s sdktrace.ReadOnlySpan) map[attribute.Key]string {
	all := make(map[attribute.Key]string)
	for _, a := range s.Attributes() {
		all[a.Key] = a.Value.String()
	}
	return all
}

// linksOf returns the spans that s links to, by the kind of link.
func linksOf(s sdktrace.ReadOnlySpan) map[string]sdktrace.Link {
	all := make(map[string]sdktrace.Link)
	for _, l := range s.Links() {
		for _, a := range l.Attributes {
			if a.Key == "zookeeper.link" {
				all[a.Value.AsString()] = l
			}
		}
	}
	return all
}

// noon is when the events of a feed begin.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// A feed makes events of one lock, without a client, for a probe.
type feed struct {
	*probe
	session int64
	path    string
	now     time.Time
	ctx     context.Context
}

func newFeed(t testing.TB, opts ...zkotel.Option) *feed {
	t.Helper()
	return &feed{newProbe(t, opts...), 1, "/locks/a", noon, context.Background()}
}

func (f *feed) event(kind protocol.EventKind, token int64, d time.Duration, err error) {
	f.now = f.now.Add(time.Second)
	f.Observe(protocol.Event{
		Kind: kind, Time: f.now, Context: f.ctx, Recipe: "lock", Path: f.path,
		Session: f.session, Token: token, Duration: d, Err: err,
	})
}

func (f *feed) acquired(token int64) { f.event(protocol.EventAcquired, token, time.Second, nil) }

func (f *feed) released(token int64) { f.event(protocol.EventReleased, token, time.Second, nil) }

var (
	errExpired = errors.Join(protocol.ErrLost, errors.New("session 0x1 expired"))
	errDeleted = errors.Join(protocol.ErrLost, protocol.ErrNodeDeleted)
)

func (f *feed) lost(token int64, err error) { f.event(protocol.EventLost, token, time.Second, err) }

// sum returns what a metric is over all series.
func (p *probe) sum(metric string) (sum float64) {
	p.t.Helper()
	for _, s := range p.measure()[metric] {
		sum += s.value
	}
	return sum
}

// held returns how many holds are active.
func (p *probe) held() float64 { return p.sum("zkrecipes.hold.active") }

func TestBadOptionsAreRefused(t *testing.T) {
	for _, option := range []zkotel.Option{
		zkotel.WithMeterProvider(nil), zkotel.WithTracerProvider(nil), zkotel.WithPathAttribute(nil),
		zkotel.WithAttributes(attribute.String("", "x")),
	} {
		_, err := zkotel.New(option)
		require.ErrorContains(t, err, "zkotel: configure the observer: ")
	}

	o, err := zkotel.New(nil)
	require.NoError(t, err)
	_, err = o.ObserveClient(nil)
	require.ErrorContains(t, err, "nil")
	_, err = o.ObserveQueue("/q", nil)
	require.ErrorContains(t, err, "nil")
	o.Observe(protocol.Event{Kind: protocol.EventAcquired, Context: t.Context()}) // with the global providers
}

func TestPathAttributeIsMappedOrDropped(t *testing.T) {
	for path, want := range map[string][]string{
		"/locks/17": {"zookeeper.recipe", "lock", "zookeeper.path", "/locks/*"},
		"/secret":   {"zookeeper.recipe", "lock"},
	} {
		f := newFeed(t, zkotel.WithPathAttribute(func(path string) string {
			if path == "/secret" {
				return ""
			}
			return "/locks/*"
		}))
		f.path = path
		f.acquired(1)
		f.lost(1, errDeleted)

		for name, of := range f.measure() {
			for set := range of {
				without, _ := set.Filter(func(a attribute.KeyValue) bool { return a.Key != "error.type" })
				require.Equal(t, labels(want...), without, name)
			}
		}
		require.Equal(t, path, attributesOf(f.only("lock hold"))["zookeeper.path"], "a span has no cardinality")
	}
}

func TestAttributesAreAddedToMetricsAndSpans(t *testing.T) {
	f := newFeed(t, zkotel.WithAttributes(attribute.String("ensemble", "east")))
	f.acquired(1)
	f.released(1)
	require.EqualValues(t, 1, f.value("zkrecipes.hold.duration", at("lock", f.path, "ensemble", "east")...).count)
	require.Equal(t, "east", attributesOf(f.only("lock wait"))["ensemble"])
	require.Equal(t, "east", attributesOf(f.only("lock hold"))["ensemble"])
}

// The events of queues and of clients count what they are about.
func TestEachKindOfEventHasACounter(t *testing.T) {
	p := newProbe(t)
	for kind, counter := range map[protocol.EventKind]struct{ name, unit string }{
		protocol.EventOffered:      {"zkrecipes.queue.offered", "{entry}"},
		protocol.EventTaken:        {"zkrecipes.queue.taken", "{entry}"},
		protocol.EventAcknowledged: {"zkrecipes.queue.acknowledged", "{entry}"},
		protocol.EventReturned:     {"zkrecipes.queue.returned", "{entry}"},
		protocol.EventRedelivered:  {"zkrecipes.queue.redelivered", "{entry}"},
		protocol.EventDeadLettered: {"zkrecipes.queue.dead_lettered", "{entry}"},
	} {
		p.Observe(protocol.Event{Kind: kind, Context: t.Context(), Recipe: "queue", Path: "/q", Count: 3})
		require.Equal(t, series{value: 3, unit: counter.unit}, p.value(counter.name, at("queue", "/q")...), counter.name)
	}

	p.Observe(protocol.Event{Kind: protocol.EventCollided, Context: t.Context(), Recipe: "queue", Path: "/q", Count: 3})
	require.Equal(t, series{value: 1, unit: "{collision}"}, p.value("zkrecipes.request.collisions", at("queue", "/q")...))
	p.Observe(protocol.Event{Kind: protocol.EventRetried, Context: t.Context(), Err: context.DeadlineExceeded})
	require.Equal(t, series{value: 1, unit: "{retry}"}, p.value("zkrecipes.request.retries", "error.type", "timeout"))
	p.Observe(protocol.Event{Kind: protocol.EventConnecting, Context: t.Context(), Count: 7, Err: errors.New("no luck")})
	require.Equal(t, series{value: 1, unit: "{report}"}, p.value("zkrecipes.connection.outages", "error.type", "_OTHER"))
	p.Observe(protocol.Event{Kind: protocol.EventReturned + 1, Context: t.Context()}) // of a later version
}

func TestHoldLinksToItsWaitAndToTheHolderBefore(t *testing.T) {
	f := newFeed(t)
	ctx, parent := f.traces.Tracer("test").Start(t.Context(), "work")
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	f.ctx = cancelled
	f.acquired(7)
	parent.End()
	f.released(7)
	f.path = "/locks/b"
	f.acquired(8)
	f.path, f.session, f.ctx = "/locks/a", 2, t.Context()
	f.acquired(9)
	f.lost(9, errExpired)

	waits, holds := f.ended("lock wait"), f.ended("lock hold")
	require.Len(t, waits, 3)
	require.Len(t, holds, 2)
	for i, token := range []string{"7", "9"} {
		require.Equal(t, token, attributesOf(holds[i])["zookeeper.fencing_token"])
	}
	require.Equal(t, parent.SpanContext(), waits[0].Parent())
	require.Equal(t, parent.SpanContext(), holds[0].Parent())
	require.False(t, holds[1].Parent().IsValid())
	require.Equal(t, noon, waits[0].StartTime(), "a wait begins before its event")
	require.Equal(t, noon.Add(time.Second), waits[0].EndTime())
	require.Equal(t, noon.Add(time.Second), holds[0].StartTime())
	require.Equal(t, noon.Add(2*time.Second), holds[0].EndTime())
	require.Equal(t, "0x2", attributesOf(holds[1])["zookeeper.session_id"])

	first, second := linksOf(holds[0]), linksOf(holds[1])
	require.Len(t, first, 1)
	require.Equal(t, waits[0].SpanContext(), first["wait"].SpanContext)
	require.Len(t, second, 2)
	require.Equal(t, waits[2].SpanContext(), second["wait"].SpanContext)
	require.Equal(t, holds[0].SpanContext(), second["previous_holder"].SpanContext)
	require.Contains(t, second["previous_holder"].Attributes, attribute.Int64("zookeeper.fencing_token", 7))

	require.Equal(t, codes.Unset, holds[0].Status().Code)
	require.Equal(t, codes.Error, holds[1].Status().Code)
	require.Equal(t, "session_lost", attributesOf(holds[1])["error.type"])
	require.Equal(t, "exception", holds[1].Events()[0].Name)
}

// Clients report their events independently, so a later holder may be seen first.
func TestHolderLinksToTheLatestBeforeIt(t *testing.T) {
	for _, test := range []struct {
		acquired []int64
		before   int64 // the token of the holder that the last one links to, or 0
	}{{[]int64{9, 7}, 0}, {[]int64{9, 7, 10}, 9}} {
		f := newFeed(t)
		for _, token := range test.acquired {
			f.acquired(token)
		}
		f.released(test.acquired[len(test.acquired)-1])
		link, linked := linksOf(f.only("lock hold"))["previous_holder"]
		require.Equal(t, test.before != 0, linked)
		if linked {
			require.Contains(t, link.Attributes, attribute.Int64("zookeeper.fencing_token", test.before))
		}
	}
}

// A program may lock a path for each of its customers, once.
func TestPathsThatAreRememberedAreBounded(t *testing.T) {
	f := newFeed(t)
	const limit, beyond = 1 << 12, 100
	for round := range int64(2) {
		for i := range limit + beyond {
			f.path = fmt.Sprintf("/customers/%d", i)
			f.acquired(1 + round)
			f.released(1 + round)
		}
	}

	linked := 0
	for _, span := range f.ended("lock hold") {
		if _, ok := linksOf(span)["previous_holder"]; ok {
			linked++
		}
	}
	require.Positive(t, linked)
	require.LessOrEqual(t, linked, limit)
}

// Readers of one process may hold one node together, and have the same token.
func TestHoldsOfOneNodeAreToldApartByTheirBeginning(t *testing.T) {
	f := newFeed(t)
	f.acquired(7)
	f.acquired(7)
	f.acquired(7)
	require.EqualValues(t, 3, f.held())
	f.event(protocol.EventReleased, 7, 2*time.Second, nil) // the second one
	require.Equal(t, noon.Add(2*time.Second), f.only("lock hold").StartTime())
	f.released(7)
	f.released(7)
	require.Zero(t, f.held())
}

// A client may report a loss before the end of the wait, and readers of one process share a node. A
// loss still counts once, and its hold is not active.
func TestEachLossCountsOnce(t *testing.T) {
	type step func(f *feed)
	held := func(token int64) step { return func(f *feed) { f.acquired(token) } }
	expired := func(token int64) step { return func(f *feed) { f.lost(token, errExpired) } }
	deleted := func(token int64) step { return func(f *feed) { f.lost(token, errDeleted) } }
	session := func(id int64) step { return func(f *feed) { f.session = id } }
	for name, test := range map[string]struct {
		steps        []step
		lost, active int
	}{
		"the end of a session, of whose holds no more is said": {
			[]step{held(1), held(2), held(3), expired(2)}, 3, 0,
		},
		"the end of a session, of which each hold says so": {
			[]step{held(1), held(2), session(2), held(100), session(1), expired(2), expired(1)}, 2, 1,
		},
		"a deleted node ends no other hold": {
			[]step{held(1), held(2), deleted(1)}, 1, 1,
		},
		"a loss before its beginning, and the next holder of the node": {
			[]step{expired(1), held(1), held(1)}, 1, 1,
		},
		"two losses of a node before their beginnings, and the next holder": {
			[]step{deleted(1), deleted(1), held(1), held(1), held(1)}, 2, 1,
		},
		"a reader whose wait ends when the session of all has ended": {
			// The first end of the session is also that of the second reader.
			[]step{held(1), held(1), expired(1), held(1), expired(1), expired(1)}, 3, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFeed(t)
			for _, step := range test.steps {
				step(f)
			}
			require.EqualValues(t, test.active, f.held())
			require.Len(t, f.ended("lock hold"), test.lost)
			require.EqualValues(t, test.lost, f.sum("zkrecipes.hold.losses"))
		})
	}
}

func TestEndOfAnUnknownHoldIsMeasured(t *testing.T) {
	f := newFeed(t)
	f.event(protocol.EventReleased, 1, time.Minute, nil)
	require.Equal(t, series{value: 60, count: 1, unit: "s"}, f.value("zkrecipes.hold.duration", at("lock", f.path)...))
	require.Equal(t, f.now.Add(-time.Minute), f.only("lock hold").StartTime())
	require.Zero(t, f.held())
}

// Without a bound an observer that misses the ends of holds would grow for ever.
func TestHoldsThatNeverEndAreBounded(t *testing.T) {
	f := newFeed(t, zkotel.WithTracerProvider(noop.NewTracerProvider()))
	const limit, beyond = 1 << 16, 100
	for token := range int64(limit + beyond) {
		f.acquired(1 + token)
	}
	require.EqualValues(t, limit, f.held())
	f.released(limit + beyond) // which counts all the same
	require.EqualValues(t, 1, f.value("zkrecipes.hold.duration", at("lock", f.path)...).count)
	require.EqualValues(t, limit, f.held())
	f.released(1)
	f.acquired(limit + beyond)
	require.EqualValues(t, limit, f.held())

	f.lost(2, errExpired) // and with it all others of the session
	require.Zero(t, f.held())
	f.session = 2
	for token := range int64(limit) {
		f.acquired(1 + token)
	}
	require.EqualValues(t, limit, f.held(), "there is room again")
}

// Without a bound an observer that misses the beginnings of holds would grow for ever.
func TestLossesWhoseBeginningNeverComesAreBounded(t *testing.T) {
	f := newFeed(t, zkotel.WithTracerProvider(noop.NewTracerProvider()))
	const limit, beyond = 1 << 16, 100
	for token := range int64(limit + beyond) {
		f.lost(1+token, errDeleted)
	}
	for token := range int64(limit + beyond) {
		f.acquired(1 + token)
	}
	require.EqualValues(t, beyond, f.held(), "of which the losses are forgotten")
}

// A wall clock that is set back makes no hold shorter than nothing.
func TestDurationOfAHoldIsNeverNegative(t *testing.T) {
	f := newFeed(t)
	f.acquired(1)
	f.now = noon.Add(-time.Hour)
	f.released(1)
	require.Equal(t, series{count: 1, unit: "s"}, f.value("zkrecipes.hold.duration", at("lock", f.path)...))
}

// A caller that gives up has met no error, but one that waited in vain has.
func TestFailedWaits(t *testing.T) {
	for what, err := range map[string]error{
		"canceled": context.Canceled, "timeout": context.DeadlineExceeded, "closed": protocol.ErrClosed,
		"outcome_unknown": protocol.ErrUncertain, "too_large": protocol.ErrTooLarge, "no_permission": zk.ErrNoAuth,
		"_OTHER": errors.New("another error"),
	} {
		f := newFeed(t)
		f.event(protocol.EventAcquired, 0, time.Second, err)
		span := f.only("lock wait")
		require.Equal(t, what, attributesOf(span)["error.type"])
		require.Equal(t, what != "canceled", span.Status().Code == codes.Error, what)
		require.Equal(t, series{value: 1, count: 1, unit: "s"},
			f.value("zkrecipes.wait.duration", at("lock", f.path, "error.type", what)...))
		require.Empty(t, f.ended("lock hold"))
		require.Zero(t, f.held())
	}
}

type slowQueue struct{ asked chan struct{} }

func (q slowQueue) Len(ctx context.Context) (int, error) {
	q.asked <- struct{}{}
	<-ctx.Done()
	return 0, ctx.Err()
}

func TestQueuesThatDoNotAnswerDelayACollectionByASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbe(t)
		q := slowQueue{make(chan struct{}, 3)}
		for _, path := range []string{"/a", "/b", "/c"} {
			stop, err := p.ObserveQueue(path, q)
			require.NoError(t, err)
			defer stop()
		}
		stop, err := p.ObserveQueue("/ready", readyQueue(5))
		require.NoError(t, err)

		began := time.Now()
		require.Equal(t, map[attribute.Set]series{labels(at("queue", "/ready")...): {value: 5, unit: "{entry}"}},
			p.measure()["zkrecipes.queue.depth"])
		require.Equal(t, time.Second, time.Since(began))
		require.Len(t, q.asked, 3)
		stop()
		for range 3 {
			<-q.asked
		}
		require.Empty(t, p.measure()["zkrecipes.queue.depth"])
	})
}

type readyQueue int

func (q readyQueue) Len(context.Context) (int, error) { return int(q), nil }
