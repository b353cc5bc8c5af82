package zkotel_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/zkrecipes/zkrecipes/lock"
	zkotel "github.com/zkrecipes/zkrecipes/otel"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A service makes one observer, with the providers that it has given to OpenTelemetry, and gives it
// to its client.
func Example() {
	server, err := embedded.Start(embedded.Config{}) // in production, your ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	recorder := tracetest.NewSpanRecorder() // in production, a batch processor
	traces := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))

	observer, err := zkotel.New(zkotel.WithTracerProvider(traces))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	client, err := protocol.Connect(ctx, server.ConnectString(), protocol.WithObserver(observer))
	if err != nil {
		log.Fatal(err)
	}
	stop, err := observer.ObserveClient(client)
	if err != nil {
		log.Fatal(err)
	}
	defer stop()

	err = lock.New(client, "/locks/report").Do(ctx, func(context.Context, *lock.Lease) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	client.Close() // which tells the observer all that it has not told yet
	for _, span := range recorder.Ended() {
		fmt.Println(span.Name())
	}
	// Output:
	// lock wait
	// lock hold
}

// Locks of customers have a series together, and not one each.
func ExampleWithPathAttribute() {
	observer, err := zkotel.New(
		zkotel.WithAttributes(attribute.String("ensemble", "east")),
		zkotel.WithPathAttribute(func(path string) string {
			if strings.HasPrefix(path, "/customers/") {
				return "/customers/*"
			}
			return path
		}),
	)
	if err != nil {
		log.Fatal(err)
	}
	protocol.WithObserver(observer)
}

// One process of a service measures how long a queue is.
func ExampleObserver_ObserveQueue() {
	var client *protocol.Client // that of the service
	observer, err := zkotel.New()
	if err != nil {
		log.Fatal(err)
	}
	stop, err := observer.ObserveQueue("/tasks", queue.New(client, "/tasks"))
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
}
