package zkotel_test

import (
	"context"
	"log"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/zkrecipes/zkrecipes/lock"
	zkotel "github.com/zkrecipes/zkrecipes/otel"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
)

// A service gives its client an observer, which uses the providers that the service has given to
// OpenTelemetry.
func Example() {
	observer, err := zkotel.New()
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	client, err := protocol.Connect(ctx, "zk1:2181,zk2:2181,zk3:2181", protocol.WithObserver(observer))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	stop, err := observer.ObserveClient(client)
	if err != nil {
		log.Fatal(err)
	}
	defer stop()

	// The spans of the lock belong to the trace of ctx.
	err = lock.New(client, "/locks/report").Do(ctx, func(ctx context.Context, l *lock.Lease) error {
		return write(ctx, l.Token())
	})
	if err != nil {
		log.Fatal(err)
	}
}

// write stands for what the service does with the lock.
func write(ctx context.Context, token int64) error { return ctx.Err() }

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
