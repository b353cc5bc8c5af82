package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// connect returns a client of an embedded server, and what ends both.
func connect() (client *protocol.Client, stop func()) {
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	client, err = protocol.Connect(context.Background(), server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	return client, func() { client.Close(); server.Close() }
}

func Example() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	exports := semaphore.New(client, "/limits/exports", 10)
	err := exports.Do(ctx, func(ctx context.Context, p *semaphore.Permit) error {
		// Ten processes at most get here at a time. The ctx is cancelled if the permit is lost.
		fmt.Println("exporting, with a permit:", p.Err() == nil)
		return ctx.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// exporting, with a permit: true
}

// A handler that would have to wait says so instead, and who has the permit.
func ExampleSemaphore_TryAcquire() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	reports := semaphore.New(client, "/limits/reports", 1, semaphore.WithData([]byte("host-4")))
	permit, err := reports.TryAcquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release(ctx)

	if _, err := reports.TryAcquire(ctx); errors.Is(err, semaphore.ErrNoPermit) {
		fmt.Println("busy")
	}
	line, err := reports.Contenders(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, this process: %t\n", line[0].Data, line[0].Token == permit.Token())
	// Output:
	// busy
	// host-4, this process: true
}

// A process that was configured with another number follows the path, too, or refuses to run.
func ExampleSemaphore_Resize() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	if err := semaphore.New(client, "/imports", 10).Resize(ctx, 20); err != nil {
		log.Fatal(err)
	}
	n, err := semaphore.New(client, "/imports", 10).Permits(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, "permits")

	strict := semaphore.New(client, "/imports", 10, semaphore.WithStrictPermits())
	_, err = strict.Acquire(ctx)
	fmt.Println(err)
	// Output:
	// 20 permits
	// semaphore: /imports: another number of permits: 10 here, 20 at the path
}
