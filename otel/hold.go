package zkotel

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// Limits of an observer's memory.
const (
	maxHolds   = 1 << 16
	maxCounted = 1 << 16
	maxPaths   = 1 << 12
)

// A holdKey identifies a held node. Several goroutines of a process can hold it together.
type holdKey struct {
	session, token int64
	path           string
}

func keyOf(e protocol.Event) holdKey { return holdKey{e.Session, e.Token, e.Path} }

// A hold is a lock, term, permit or item that a client holds.
type hold struct {
	began  protocol.Event // without its context
	labels metric.MeasurementOption
	span   trace.Span
}

// holds has the current holds, and as much about former holds as we need.
//
// A client reports its events one after the other, but not always in the order in which they
// happened: a loss can come before the end of the wait. A client under load leaves out events.
type holds struct {
	mu      sync.Mutex // protects the fields below; nothing blocks while it is held
	count   int
	held    map[int64]map[holdKey][]*hold // by session
	early   map[holdKey]int               // ends that were counted before the beginnings came
	counted map[holdKey]int               // ends that were counted with their session's end, before they came
	latest  map[string]holder             // by path: the holder with the greatest token
}

// A later holder's span links to a holder.
type holder struct {
	token int64
	span  trace.SpanContext
}

func newHolds() *holds {
	return &holds{
		held:    make(map[int64]map[holdKey][]*hold),
		early:   make(map[holdKey]int),
		counted: make(map[holdKey]int),
		latest:  make(map[string]holder),
	}
}

// begin follows a hold that begins with e, after the wait with the span waited.
func (o *Observer) begin(ctx context.Context, e protocol.Event, labels metric.MeasurementOption, waited trace.SpanContext) {
	if o.holds.forget(o.holds.early, keyOf(e)) || o.holds.full() {
		return
	}

	h := o.newHold(ctx, e, e.Time, labels, waited)
	o.holds.add(h)
	o.holding.Add(ctx, 1, h.labels)
}

// newHold makes a hold from an event about it, and begins its span.
func (o *Observer) newHold(ctx context.Context, e protocol.Event, since time.Time,
	labels metric.MeasurementOption, waited trace.SpanContext) *hold {
	var links []trace.Link
	if waited.IsValid() {
		links = append(links, trace.Link{
			SpanContext: waited,
			Attributes:  []attribute.KeyValue{linkKey.String("wait")},
		})
	}

	if before := o.holds.before(e); before.span.IsValid() {
		links = append(links, trace.Link{
			SpanContext: before.span,
			Attributes:  []attribute.KeyValue{linkKey.String("previous_holder"), tokenKey.Int64(before.token)},
		})
	}

	_, span := o.tracer.Start(ctx, spanName(e, "hold"), trace.WithTimestamp(since),
		trace.WithAttributes(o.spanAttributes(e)...), trace.WithLinks(links...))
	o.holds.follow(e, span.SpanContext())

	e.Context, e.Time = nil, since
	return &hold{e, labels, span}
}

// release ends the hold that e reports as released.
func (o *Observer) release(ctx context.Context, e protocol.Event) {
	if o.holds.forget(o.holds.counted, keyOf(e)) {
		return
	}

	since := e.Time.Add(-e.Duration)
	h := o.holds.remove(keyOf(e), since)
	if h != nil {
		o.holding.Add(ctx, -1, h.labels)
	} else {
		h = o.newHold(ctx, e, since, o.labels(e), trace.SpanContext{})
		if e.Err != nil { // the end of its wait may still come
			o.holds.remember(o.holds.early, keyOf(e))
		}
	}

	o.end(ctx, h, e)
}

// lose ends the hold that e reports as lost. If its session has ended, all holds of the session end
// (the events of some may have been left out).
func (o *Observer) lose(ctx context.Context, e protocol.Event) {
	o.release(ctx, e)
	if errors.Is(e.Err, protocol.ErrNodeDeleted) {
		return
	}
	for key, holds := range o.holds.removeSession(e.Session) {
		for _, h := range holds {
			o.holds.remember(o.holds.counted, key)
			o.holding.Add(ctx, -1, h.labels)
			o.end(ctx, h, e)
		}
	}
}

// end measures a hold that ends with e. e can be about another hold of the session.
func (o *Observer) end(ctx context.Context, h *hold, e protocol.Event) {
	labels := h.labels
	if e.Err != nil {
		labels = o.labels(h.began, ofError(e.Err)...)
		o.losses.Add(ctx, 1, labels)
	}

	o.hold.Record(ctx, max(0, e.Time.Sub(h.began.Time)).Seconds(), labels)
	fail(h.span, e)
	h.span.End(trace.WithTimestamp(e.Time))
}

func (s *holds) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count >= maxHolds
}

func (s *holds) add(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(h.began)

	if s.held[key.session] == nil {
		s.held[key.session] = make(map[holdKey][]*hold)
	}
	s.held[key.session][key] = append(s.held[key.session][key], h)
	s.count++
}

// remove removes and returns a hold, or returns nil. If there are several, it takes the hold that
// began closest to since.
func (s *holds) remove(key holdKey, since time.Time) *hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	candidates := s.held[key.session][key]
	if len(candidates) == 0 {
		return nil
	}

	// Several candidates share a node.
	h := slices.MinFunc(candidates, func(a, b *hold) int {
		return cmp.Compare(a.began.Time.Sub(since).Abs(), b.began.Time.Sub(since).Abs())
	})
	s.count--
	if len(candidates) > 1 {
		i := slices.Index(candidates, h)
		s.held[key.session][key] = slices.Delete(candidates, i, i+1)
		return h
	}

	delete(s.held[key.session], key)
	if len(s.held[key.session]) == 0 {
		delete(s.held, key.session)
	}
	return h
}

// removeSession removes all holds of a session.
func (s *holds) removeSession(session int64) map[holdKey][]*hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	removed := s.held[session]
	delete(s.held, session)

	for _, holds := range removed {
		s.count -= len(holds)
	}
	return removed
}

// remember notes (in early or counted) that the end of a hold was counted.
func (s *holds) remember(ends map[holdKey]int, key holdKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	put(ends, maxCounted, key, ends[key]+1)
}

// forget reports whether the end of the hold was already counted (once for each call of remember).
func (s *holds) forget(ends map[holdKey]int, key holdKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch ends[key] {
	case 0:
		return false
	case 1:
		delete(ends, key)
	default:
		ends[key]--
	}
	return true
}

// before returns the holder before the holder in e, if it is known.
func (s *holds) before(e protocol.Event) holder {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.latest[e.Path]; h.token <= e.Token {
		return h
	}
	return holder{}
}

// follow notes the span of the holder in e.
func (s *holds) follow(e protocol.Event, span trace.SpanContext) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest[e.Path].token <= e.Token {
		put(s.latest, maxPaths, e.Path, holder{e.Token, span})
	}
}

// put sets m[key]. If m has limit other elements, it deletes any of them.
func put[K comparable, V any](m map[K]V, limit int, key K, value V) {
	for other := range m {
		if _, there := m[key]; there || len(m) < limit {
			break
		}
		delete(m, other)
	}
	m[key] = value
}
