package zkotel_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	zkotel "github.com/zkrecipes/zkrecipes/otel"
)

var update = flag.Bool("update", false, "write the files of testdata")

// requireGolden compares a text with a file of testdata.
func requireGolden(t *testing.T, name, text string) {
	t.Helper()
	name = "testdata/" + name
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	want := suite.Got(os.ReadFile(name))(t)
	require.Equal(t, strings.Split(string(want), "\n"), strings.Split(text, "\n"), "go test -update writes %s", name)
}

// A probe is an observer with an SDK behind it.
type probe struct {
	*zkotel.Observer
	t           testing.TB
	reader      *sdkmetric.ManualReader
	spans       *tracetest.SpanRecorder
	traces      *sdktrace.TracerProvider
	zero        time.Time         // the time that a text calls 0s
	instruments map[string]string // each that has measured something: its description, by name

	// What changes has told: a number of spans, and series.
	began, ended int
	number       map[trace.SpanID]int
	series       map[string]string
}

func newProbe(t testing.TB, opts ...zkotel.Option) *probe {
	t.Helper()
	p := &probe{
		t: t, reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder(), zero: time.Now(),
		instruments: make(map[string]string), number: make(map[trace.SpanID]int),
	}
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

// measure collects all metrics: the value of each series, by the metric's name and attributes.
func (p *probe) measure() map[string]string {
	p.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(p.t, p.reader.Collect(context.Background(), &all))

	found := make(map[string]string)
	for _, scope := range all.ScopeMetrics {
		require.Equal(p.t, "github.com/zkrecipes/zkrecipes/otel", scope.Scope.Name)
		for _, m := range scope.Metrics {
			kind := "gauge"
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				kind = map[bool]string{true: "counter", false: "up-down counter"}[data.IsMonotonic]
				values(found, m.Name, data.DataPoints)
			case metricdata.Gauge[int64]:
				values(found, m.Name, data.DataPoints)
			case metricdata.Gauge[float64]:
				values(found, m.Name, data.DataPoints)
			case metricdata.Histogram[float64]:
				for _, d := range data.DataPoints {
					kind = fmt.Sprint("histogram ", d.Bounds)
					found[m.Name+set(d.Attributes.ToSlice())] = fmt.Sprintf("%d of %vs", d.Count, d.Sum)
				}
			default:
				require.Failf(p.t, "unknown data", "%s: %T", m.Name, data)
			}
			p.instruments[m.Name] = fmt.Sprintf("%s %s\n\t%s\n\t%s\n", m.Name, m.Unit, kind, m.Description)
		}
	}
	return found
}

// values adds the series of a counter or gauge.
func values[N int64 | float64](found map[string]string, name string, points []metricdata.DataPoint[N]) {
	for _, d := range points {
		found[name+set(d.Attributes.ToSlice())] = fmt.Sprint(d.Value)
	}
}

// set returns attributes as a text.
func set(attributes []attribute.KeyValue) string {
	var all []string
	for _, a := range attributes {
		all = append(all, fmt.Sprintf("%s=%#v", a.Key, a.Value.AsInterface()))
	}
	return "{" + strings.Join(all, " ") + "}"
}

// of returns the series of some metrics.
func (p *probe) of(prefix string) map[string]string {
	p.t.Helper()
	found := p.measure()
	maps.DeleteFunc(found, func(name, _ string) bool { return !strings.HasPrefix(name, prefix) })
	return found
}

// changes tells which spans have begun or ended, and which series have changed, since it was last
// called.
func (p *probe) changes() string {
	p.t.Helper()
	var out strings.Builder
	all, ended := p.spans.Started(), p.spans.Ended()
	for i, s := range all[p.began:] {
		p.number[s.SpanContext().SpanID()] = p.began + i + 1
		fmt.Fprintf(&out, "\tspan %d begins: %s\n", p.began+i+1, s.Name())
	}
	// Two clients can end spans in any order.
	slices.SortFunc(ended[p.ended:], func(a, b sdktrace.ReadOnlySpan) int {
		return p.number[a.SpanContext().SpanID()] - p.number[b.SpanContext().SpanID()]
	})
	for _, s := range ended[p.ended:] {
		fmt.Fprintf(&out, "\tspan %s\n", p.tell(s))
	}
	p.began, p.ended = len(all), len(ended)

	series := p.measure()
	for _, name := range slices.Sorted(maps.Keys(series)) {
		if series[name] != p.series[name] {
			fmt.Fprintf(&out, "\t%s: %s\n", name, series[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.series)) {
		if _, there := series[name]; !there {
			fmt.Fprintf(&out, "\t%s ends\n", name)
		}
	}
	p.series = series
	return out.String()
}

// tell tells all about a span that has ended.
func (p *probe) tell(s sdktrace.ReadOnlySpan) string {
	at := func(t time.Time) time.Duration { return t.Sub(p.zero) }

	var out strings.Builder
	fmt.Fprintf(&out, "%d ends: %s, %s, %v to %v", p.number[s.SpanContext().SpanID()], s.Name(), s.SpanKind(),
		at(s.StartTime()), at(s.EndTime()))
	if s.Parent().IsValid() {
		fmt.Fprintf(&out, ", in span %d", p.number[s.Parent().SpanID()])
	}
	fmt.Fprintf(&out, "\n\t\t%s", set(s.Attributes()))
	if s.Status().Code != codes.Unset {
		fmt.Fprintf(&out, "\n\t\t%s %q", s.Status().Code, s.Status().Description)
	}
	for _, e := range s.Events() {
		fmt.Fprintf(&out, "\n\t\t%s at %v", e.Name, at(e.Time))
	}
	for _, l := range s.Links() {
		fmt.Fprintf(&out, "\n\t\tlink to span %d %s", p.number[l.SpanContext.SpanID()], set(l.Attributes))
	}
	return out.String()
}
