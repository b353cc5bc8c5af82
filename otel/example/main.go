// Observability has three workers that contend for a lock, elect a leader and share a queue. It
// serves their metrics for Prometheus. Then it ends the leader's session, takes the servers away
// for a while, and offers an item that no worker can handle. It shows how the metrics report each:
//
//	go run ./otel/example
//
// With -serve the workers go on until Ctrl-C, for your own Prometheus and Grafana. dashboard.json
// (for Grafana) and alerts.yaml (for Prometheus) are beside this file. ZooKeeper runs inside the
// program, because we can't take away the servers of an ensemble.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/lock"
	zkotel "github.com/zkrecipes/zkrecipes/otel"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func main() {
	serve := flag.Bool("serve", false, "go on until the program is interrupted")
	listen := flag.String("listen", "127.0.0.1:0", "the `address` to serve metrics at; port 0 is a free one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	last := func(context.Context, []*protocol.Client) error { return nil }
	if *serve {
		last = func(ctx context.Context, _ []*protocol.Client) error { <-ctx.Done(); return nil }
	}
	if _, err := run(ctx, os.Stdout, *listen, last); err != nil {
		log.Fatal("observability: ", err)
	}
}

// serveMetrics serves metrics for Prometheus until stop is called. It returns an observer for the
// clients. Your own service needs only this.
func serveMetrics(address string) (observer *zkotel.Observer, url string, stop func(), err error) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return nil, "", nil, err
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	if observer, err = zkotel.New(zkotel.WithMeterProvider(provider)); err != nil {
		return nil, "", nil, err
	}

	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, "", nil, err
	}
	server := &http.Server{Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(listener)
	stop = func() { server.Close(); provider.Shutdown(context.Background()) }
	return observer, "http://" + listener.Addr().String() + "/metrics", stop, nil
}

// run breaks things, shows the metrics, calls last, and returns the metrics.
func run(ctx context.Context, out io.Writer, listen string, last func(context.Context, []*protocol.Client) error) (page string, err error) {
	server, err := embedded.Start(embedded.Config{TickTime: 500 * time.Millisecond})
	if err != nil {
		return "", err
	}
	defer server.Close()
	observer, url, stop, err := serveMetrics(listen)
	if err != nil {
		return "", err
	}
	defer stop()
	fmt.Fprintln(out, "The metrics are at", url)

	ctx, cancel := context.WithCancelCause(ctx)
	var working sync.WaitGroup
	defer working.Wait()
	defer cancel(nil)
	lead := func(ctx context.Context, _ *election.Term) error { <-ctx.Done(); return nil } // Run stands again
	var clients []*protocol.Client
	for i := range 3 {
		c, err := protocol.Connect(ctx, server.ConnectString(), protocol.WithSessionTimeout(4*time.Second), protocol.WithObserver(observer))
		if err != nil {
			return "", err
		}
		defer c.Close()
		clients = append(clients, c)
		observer.ObserveClient(c, attribute.Int("worker", i+1))

		dead := queue.New(c, "/demo/dead")
		tasks := queue.New(c, "/demo/tasks", queue.WithDeadLetter(dead, 2))
		working.Go(func() { cancel(contend(ctx, lock.New(c, "/demo/lock"))) })
		working.Go(func() { cancel(election.New(c, "/demo/leader").Run(ctx, nil, lead)) })
		working.Go(func() { cancel(tasks.Consume(ctx, 2, handle)) })
		if i == 0 {
			working.Go(func() { cancel(produce(ctx, tasks)) })
			observer.ObserveQueue("/demo/tasks", tasks) // in one process, because each look lists the queue
			observer.ObserveQueue("/demo/dead", dead)
		}
	}

	// see waits until the metrics show what happened.
	see := func(what, pattern string) {
		fmt.Fprintln(out, what)
		shown := regexp.MustCompile("(?s)" + pattern)
		for page = ""; ctx.Err() == nil && !shown.MatchString(page); time.Sleep(50 * time.Millisecond) {
			page = scrape(url)
		}
	}

	const leader = `zkrecipes_hold_active{[^}]*election"} 1.*`
	see("Three workers are busy, and one of them leads. A task is poison: no worker can handle it.", leader+`queue_dead_lettered`)
	if line, _ := election.New(clients[0], "/demo/leader").Candidates(ctx); len(line) > 0 {
		server.ExpireSession(line[0].Session)
	}
	see("The servers end the session of the leader.", `hold_losses_total{error_type="session_lost"`)
	see("There is a leader again.", leader)

	server.Stop()
	see("No server can be reached.", `hold_losses_total{error_type="trust_over"`)
	err = errors.Join(err, server.Resume())
	see("The servers are back.", leader+`request_retries`)
	err = errors.Join(err, last(ctx, clients))
	see("The metrics say, among others:", `queue_depth{.*queue_depth{`)
	fmt.Fprintln(out, strings.Join(regexp.MustCompile(`(?m)^zkrecipes_.*_total{.*$`).FindAllString(page, -1), "\n"))
	return page, errors.Join(context.Cause(ctx), err)
}

// scrape reads the metrics as Prometheus does.
func scrape(url string) string {
	answer, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return string(text)
}

// contend holds a lock for a moment, again and again. It goes on after a loss.
func contend(ctx context.Context, m *lock.Mutex) (err error) {
	for err == nil || errors.Is(err, protocol.ErrLost) {
		err = m.Do(ctx, func(context.Context, *lock.Lease) error { time.Sleep(20 * time.Millisecond); return nil })
	}
	return err
}

// handle fails for a poisoned task.
func handle(_ context.Context, it *queue.Item) error {
	_, err := strconv.Atoi(string(it.Data()))
	return err
}

// produce offers a task now and then.
func produce(ctx context.Context, tasks *queue.Queue) (err error) {
	for i := 1; err == nil || errors.Is(err, protocol.ErrUncertain); i++ {
		task := map[bool]string{true: "poison", false: "42"}[i%20 == 0]
		_, err = tasks.Offer(ctx, []byte(task))
		time.Sleep(50 * time.Millisecond)
	}
	return err
}
