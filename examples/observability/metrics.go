package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	zkotel "github.com/zkrecipes/zkrecipes/otel"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// metrics are an observer and the page that Prometheus scrapes.
type metrics struct {
	*zkotel.Observer
	provider *sdkmetric.MeterProvider
	server   *http.Server
	url      string
}

// serveMetrics serves metrics at an address. This is all that a service of yours needs, too.
func serveMetrics(address string) (*metrics, error) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	observer, err := zkotel.New(zkotel.WithMeterProvider(provider))
	if err != nil {
		return nil, err
	}

	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(listener) // until close
	return &metrics{observer, provider, server, fmt.Sprintf("http://%s/metrics", listener.Addr())}, nil
}

func (m *metrics) close() error {
	return errors.Join(m.server.Close(), m.provider.Shutdown(context.Background()))
}

// scrape reads the page as Prometheus does.
func (m *metrics) scrape(ctx context.Context) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("scrape the metrics: %s: %s", answer.Status, page)
	}
	return string(page), err
}

// A tally passes events on to an observer, and lets the demonstration wait for them.
type tally struct {
	observer protocol.Observer

	mu      sync.Mutex // protects what follows
	seen    map[protocol.EventKind]int
	changed chan struct{} // closed, and made anew, with each event
}

func newTally(o protocol.Observer) *tally {
	return &tally{observer: o, seen: make(map[protocol.EventKind]int), changed: make(chan struct{})}
}

// Observe implements protocol.Observer.
func (t *tally) Observe(e protocol.Event) {
	t.observer.Observe(e)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen[e.Kind]++
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *tally) count(kind protocol.EventKind) (n int, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen[kind], t.changed
}

// await waits until there were n events of a kind.
func (t *tally) await(ctx context.Context, kind protocol.EventKind, n int) error {
	for {
		seen, changed := t.count(kind)
		if seen >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for %d events %q, of which there were %d: %w", n, kind, seen, ctx.Err())
		}
	}
}
