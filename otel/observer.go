package zkotel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// The keys of attributes.
const (
	recipeKey  = attribute.Key("zookeeper.recipe")
	pathKey    = attribute.Key("zookeeper.path")
	modeKey    = attribute.Key("zookeeper.mode")
	sessionKey = attribute.Key("zookeeper.session_id")
	tokenKey   = attribute.Key("zookeeper.fencing_token")
	linkKey    = attribute.Key("zookeeper.link")
	stateKey   = attribute.Key("zookeeper.client.state")
	errorKey   = attribute.Key("error.type")
)

// scope names this package in metrics and spans.
const scope = "github.com/zkrecipes/zkrecipes/otel"

// An Observer turns events into metrics and spans (see the package documentation). Give it to
// [protocol.WithObserver]. Any number of clients can share it, as long as all their paths belong to
// one ensemble and one chroot. It is safe for concurrent use.
type Observer struct {
	meters        metric.MeterProvider
	tracers       trace.TracerProvider
	attributes    []attribute.KeyValue
	pathAttribute func(string) string

	*instruments
	tracer  trace.Tracer
	holds   *holds
	sources sources
}

var _ protocol.Observer = (*Observer)(nil)

// New returns an observer. It does no I/O. It returns an error for a bad option. It also returns an
// error if the meter provider refuses a metric (for example because another metric has the same
// name).
func New(opts ...Option) (*Observer, error) {
	o := &Observer{
		meters:        otel.GetMeterProvider(),
		tracers:       otel.GetTracerProvider(),
		pathAttribute: func(path string) string { return path },
		holds:         newHolds(),
	}

	var err error
	for _, option := range opts {
		if option != nil {
			err = errors.Join(err, option(o))
		}
	}

	if err != nil {
		return nil, fmt.Errorf("zkotel: configure the observer: %w", err)
	}

	o.tracer = o.tracers.Tracer(scope)
	meter := o.meters.Meter(scope)
	if o.instruments, err = newInstruments(meter); err != nil {
		return nil, fmt.Errorf("zkotel: make the instruments: %w", err)
	}
	_, err = meter.RegisterCallback(o.sources.collect, o.trust, o.timeout, o.ephemeral, o.state, o.depth)
	if err != nil {
		return nil, fmt.Errorf("zkotel: register the gauges: %w", err)
	}

	return o, nil
}

// Observe implements [protocol.Observer]. It does no I/O, and blocks only if a span processor of
// the tracer provider blocks.
func (o *Observer) Observe(e protocol.Event) {
	// The SDK can ignore measurements with a context that has ended, and the context of a wait may
	// have.
	ctx := context.WithoutCancel(e.Context)
	switch e.Kind {
	case protocol.EventWaiting:
		o.waiting.Add(ctx, 1, o.labels(e))
	case protocol.EventAcquired:
		o.acquire(ctx, e)
	case protocol.EventReleased:
		o.release(ctx, e)
	case protocol.EventLost:
		o.lose(ctx, e)
	case protocol.EventRetried, protocol.EventConnecting:
		o.counters[e.Kind].Add(ctx, 1, o.labels(e, ofError(e.Err)...))
	case protocol.EventCollided:
		o.counters[e.Kind].Add(ctx, 1, o.labels(e))
	default: // a queue's entries, or an event of a later version of package protocol
		if counter := o.counters[e.Kind]; counter != nil {
			counter.Add(ctx, int64(max(e.Count, 1)), o.labels(e))
		}
	}
}

// acquire ends a wait. If the wait was successful, it begins a hold.
func (o *Observer) acquire(ctx context.Context, e protocol.Event) {
	labels := o.labels(e)
	o.waiting.Add(ctx, -1, labels)
	waited := o.traceWait(e)

	if e.Err != nil {
		o.wait.Record(ctx, e.Duration.Seconds(), o.labels(e, ofError(e.Err)...))
		return
	}

	o.wait.Record(ctx, e.Duration.Seconds(), labels)
	if e.Token != 0 {
		o.begin(ctx, e, labels, waited)
	}
}

// labels returns the attributes of a measurement from e.
func (o *Observer) labels(e protocol.Event, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(o.describe(e.Recipe, o.pathAttribute(e.Path), e.Mode, more...)...))
}

// describe returns the attributes that aren't empty, and the observer's own.
func (o *Observer) describe(recipe, path, mode string, more ...attribute.KeyValue) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, len(o.attributes)+len(more)+3)
	all = append(all, o.attributes...)
	for _, a := range []attribute.KeyValue{recipeKey.String(recipe), pathKey.String(path), modeKey.String(mode)} {
		if a.Value.AsString() != "" {
			all = append(all, a)
		}
	}
	return append(all, more...)
}

func ofError(err error) []attribute.KeyValue {
	if err == nil {
		return nil
	}
	return []attribute.KeyValue{errorKey.String(errorType(err))}
}

// traceWait makes the span of a wait that ended with e.
func (o *Observer) traceWait(e protocol.Event) trace.SpanContext {
	_, span := o.tracer.Start(e.Context, spanName(e, "wait"),
		trace.WithTimestamp(e.Time.Add(-e.Duration)), trace.WithAttributes(o.spanAttributes(e)...))
	fail(span, e)
	span.End(trace.WithTimestamp(e.Time))
	return span.SpanContext()
}

// spanName returns a name of low cardinality ("rwlock read wait", for example).
func spanName(e protocol.Event, what string) string {
	if e.Mode != "" {
		return e.Recipe + " " + e.Mode + " " + what
	}
	return e.Recipe + " " + what
}

func (o *Observer) spanAttributes(e protocol.Event) []attribute.KeyValue {
	all := o.describe(e.Recipe, e.Path, e.Mode)
	if e.Session != 0 {
		all = append(all, sessionKey.String(fmt.Sprintf("%#x", uint64(e.Session))))
	}
	if e.Token != 0 {
		all = append(all, tokenKey.Int64(e.Token))
	}
	return all
}

// fail records e's error in the span, if there is one.
func fail(span trace.Span, e protocol.Event) {
	if e.Err == nil {
		return
	}

	what := errorType(e.Err)
	span.SetAttributes(errorKey.String(what))
	if !slices.Contains([]string{busy, canceled}, what) {
		span.RecordError(e.Err, trace.WithTimestamp(e.Time))
		span.SetStatus(codes.Error, e.Err.Error())
	}
}
