package zkotel

import (
	"errors"

	"go.opentelemetry.io/otel/metric"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// instruments has all instruments of an observer.
type instruments struct {
	waiting  metric.Int64UpDownCounter
	wait     metric.Float64Histogram
	holding  metric.Int64UpDownCounter
	hold     metric.Float64Histogram
	losses   metric.Int64Counter
	counters map[protocol.EventKind]metric.Int64Counter // of the other events

	trust     metric.Float64ObservableGauge
	timeout   metric.Float64ObservableGauge
	ephemeral metric.Int64ObservableGauge
	state     metric.Int64ObservableGauge
	depth     metric.Int64ObservableGauge
}

// durations are the buckets of waits and holds, from a round trip to a day.
var durations = []float64{
	.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 21600, 86400,
}

func newInstruments(m metric.Meter) (*instruments, error) {
	var failed error
	counter := func(name, unit, description string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		failed = errors.Join(failed, err)
		return c
	}

	upDown := func(name, unit, description string) metric.Int64UpDownCounter {
		c, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
		failed = errors.Join(failed, err)
		return c
	}
	histogram := func(name, description string) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(durations...))
		failed = errors.Join(failed, err)
		return h
	}

	seconds := func(name, description string) metric.Float64ObservableGauge {
		g, err := m.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(description))
		failed = errors.Join(failed, err)
		return g
	}
	gauge := func(name, unit, description string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		failed = errors.Join(failed, err)
		return g
	}

	i := &instruments{
		waiting: upDown("zkrecipes.wait.active", "{wait}", "Waits that are under way."),
		wait:    histogram("zkrecipes.wait.duration", "Duration of waits that have ended."),
		holding: upDown("zkrecipes.hold.active", "{hold}", "Locks, permits, terms and memberships that are held."),
		hold:    histogram("zkrecipes.hold.duration", "Duration of holds that have ended."),
		losses:  counter("zkrecipes.hold.losses", "{loss}", "Holds that were lost."),
		counters: map[protocol.EventKind]metric.Int64Counter{
			protocol.EventRetried:      counter("zkrecipes.request.retries", "{retry}", "Requests that did not succeed and were tried again."),
			protocol.EventCollided:     counter("zkrecipes.request.collisions", "{collision}", "Requests that were repeated as another client was faster."),
			protocol.EventConnecting:   counter("zkrecipes.connection.outages", "{report}", "Reports that there has been no connection for a while."),
			protocol.EventOffered:      counter("zkrecipes.queue.offered", "{entry}", "Entries appended to a queue."),
			protocol.EventTaken:        counter("zkrecipes.queue.taken", "{entry}", "Entries removed from a queue by Take, Poll or PollN."),
			protocol.EventAcknowledged: counter("zkrecipes.queue.acknowledged", "{entry}", "Items that their holders had acknowledged."),
			protocol.EventReturned:     counter("zkrecipes.queue.returned", "{entry}", "Items that their holders had given back."),
			protocol.EventRedelivered:  counter("zkrecipes.queue.redelivered", "{entry}", "Items that were delivered again."),
			protocol.EventDeadLettered: counter("zkrecipes.queue.dead_lettered", "{entry}", "Items that went to the dead letters."),
		},
		trust:     seconds("zkrecipes.session.trust", "Time left until what is held is lost, if nothing more is heard from the ensemble."),
		timeout:   seconds("zkrecipes.session.timeout", "Session timeout that the ensemble has granted."),
		ephemeral: gauge("zkrecipes.session.ephemeral", "By", "Size of the paths of the session's ephemeral nodes."),
		state:     gauge("zkrecipes.client.state", "{client}", "1 for the state that the client is in, and 0 for the others."),
		depth:     gauge("zkrecipes.queue.depth", "{entry}", "Entries in a queue, reserved and delayed ones included."),
	}

	return i, failed
}
