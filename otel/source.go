package zkotel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// collectTimeout bounds how long a collection of the metrics waits for sources.
const collectTimeout = time.Second

// sources are read when metrics are collected. The zero value has none. It is safe for concurrent
// use.
type sources struct {
	mu  sync.Mutex // protects all
	all map[*source]struct{}
}

// A source measures something. It returns a function that reports the result (or nil). It returns
// soon after ctx has ended.
type source func(ctx context.Context) (report func(metric.Observer))

// add adds a source, until remove is called.
func (s *sources) add(measure source) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[*source]struct{})
	}
	s.all[&measure] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, &measure)
	}
}

// collect asks all sources at the same time. It returns no error, because the SDK's periodic reader
// would then export nothing (just when the ensemble is unreachable).
func (s *sources) collect(ctx context.Context, m metric.Observer) error {
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()

	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.all))
	s.mu.Unlock()

	reports := make([]func(metric.Observer), len(all))
	var asked sync.WaitGroup
	for i, measure := range all {
		asked.Go(func() { reports[i] = (*measure)(ctx) })
	}
	asked.Wait()

	for _, report := range reports {
		if report != nil {
			report(m)
		}
	}
	return nil
}

// Whenever metrics are collected, ObserveClient measures the client's state, the remaining trust of
// its session and the size of the session's ephemeral nodes. A client without a session has no
// trust. The attributes are added to these metrics (if a process has several clients, use them to
// tell the clients apart).
//
// A collection reads clocks and sends nothing. The measurements go on until stop is called, even
// after the client was closed. The only possible error is a nil client.
func (o *Observer) ObserveClient(c *protocol.Client, attributes ...attribute.KeyValue) (stop func(), err error) {
	if c == nil {
		return nil, errors.New("zkotel: observe a client: it is nil")
	}
	own := metric.WithAttributeSet(attribute.NewSet(o.describe("", "", "", attributes...)...))

	return o.sources.add(func(ctx context.Context) func(metric.Observer) {
		state := c.State()
		var s *protocol.Session
		if state == protocol.Connected || state == protocol.Suspended {
			s, _ = c.Session(ctx) // there is one, or it ended a moment ago
		}

		return func(m metric.Observer) {
			for _, each := range []protocol.State{protocol.Connected, protocol.Suspended, protocol.Lost, protocol.Closed} {
				value := int64(0)
				if each == state {
					value = 1
				}
				m.ObserveInt64(o.state, value, own, metric.WithAttributes(stateKey.String(each.String())))
			}
			if s == nil {
				m.ObserveFloat64(o.trust, 0, own)
				return
			}
			m.ObserveFloat64(o.trust, max(0, time.Until(s.Deadline())).Seconds(), own)
			m.ObserveFloat64(o.timeout, s.Timeout().Seconds(), own)
			m.ObserveInt64(o.ephemeral, int64(s.EphemeralBytes()), own)
		}
	}), nil
}

// ObserveQueue measures the depth of the queue at path whenever metrics are collected.
//
// A collection calls Len, which lists the queue. A listing of a hundred thousand entries has
// megabytes, and each process that observes the queue fetches one. So let one process observe it.
//
// A collection asks all queues of an observer at the same time, and waits for at most a second. A
// queue that hasn't answered by then is left out, and OpenTelemetry's error handler gets the error.
// The measurements go on until stop is called. The only possible error is a nil queue.
func (o *Observer) ObserveQueue(path string, q Queue) (stop func(), err error) {
	if q == nil {
		return nil, fmt.Errorf("zkotel: observe the queue at %s: it is nil", path)
	}
	labels := o.labels(protocol.Event{Recipe: "queue", Path: path})

	return o.sources.add(func(ctx context.Context) func(metric.Observer) {
		n, err := q.Len(ctx)
		if err != nil {
			otel.Handle(fmt.Errorf("zkotel: measure the depth of a queue: %w", err))
			return nil
		}
		return func(m metric.Observer) { m.ObserveInt64(o.depth, int64(n), labels) }
	}), nil
}

// A Queue is a queue that [Observer.ObserveQueue] can measure. (The Queue of package queue can be.)
type Queue interface {
	// Len returns the number of entries. It returns an error soon after ctx has ended.
	Len(ctx context.Context) (int, error)
}
