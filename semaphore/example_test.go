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

func Example() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	exports := semaphore.New(client, "/limits/exports", 10)
	err = exports.Do(ctx, func(ctx context.Context, p *semaphore.Permit) error {
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

// A handler that would have to wait says so instead.
func ExampleSemaphore_TryAcquire() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	reports := semaphore.New(client, "/limits/reports", 1)
	for range 2 {
		p, err := reports.TryAcquire(ctx)
		if errors.Is(err, semaphore.ErrNoPermit) {
			fmt.Println("busy")
			return
		} else if err != nil {
			log.Fatal(err)
		}
		defer p.Release(ctx)
		fmt.Println("at work")
	}
	// Output:
	// at work
	// busy
}

// A process that was configured with another number follows the path, too.
func ExampleSemaphore_Resize() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	imports := semaphore.New(client, "/imports", 10)
	if err := imports.Resize(ctx, 20); err != nil {
		log.Fatal(err)
	}
	n, err := semaphore.New(client, "/imports", 10).Permits(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, "permits")
	// Output:
	// 20 permits
}

// A process that must not run with another number than its configuration says.
func ExampleWithStrictPermits() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	if err := semaphore.New(client, "/imports", 10).Resize(ctx, 20); err != nil {
		log.Fatal(err)
	}
	strict := semaphore.New(client, "/imports", 10, semaphore.WithStrictPermits())
	_, err = strict.Acquire(ctx)
	fmt.Println(err)
	// Output:
	// semaphore: /imports: another number of permits: 10 here, 20 at the path
}

// What an operator sees: who holds a permit, and who waits.
func ExampleSemaphore_Contenders() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	imports := semaphore.New(client, "/limits/imports", 3, semaphore.WithData([]byte("host-4")))
	permit, err := imports.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release(ctx)

	line, err := imports.Contenders(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range line {
		fmt.Printf("%s, this process: %t\n", c.Data, c.Token == permit.Token())
	}
	// Output:
	// host-4, this process: true
}
