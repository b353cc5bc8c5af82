package once_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A job that cron starts on three machines each night.
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

	nightly := func(day string) error {
		reports := once.New(client, "/once/reports")
		ran, err := reports.Do(ctx, day, func(ctx context.Context, token int64) error {
			fmt.Println("writing the report of", day)
			return ctx.Err() // of the right to run
		})
		if err == nil && !ran {
			fmt.Println("another machine has written it")
		}
		return err
	}
	for range 3 {
		if err := nightly("2030-01-31"); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// writing the report of 2030-01-31
	// another machine has written it
	// another machine has written it
}

// A run that fails does not count: the next call runs.
func ExampleOnce_Do_failure() {
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

	bills := once.New(client, "/once/bills", once.WithKeep(24))
	for attempt := 1; attempt <= 3; attempt++ {
		ran, err := bills.Do(ctx, "2030-01", func(context.Context, int64) error {
			if attempt == 1 {
				return errors.New("no paper")
			}
			return nil
		})
		fmt.Println(ran, err)
	}
	// Output:
	// true no paper
	// true <nil>
	// false <nil>
}

// Keys are remembered for as long as a late process may ask for them: here, a month of nights.
func ExampleWithKeep() {
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

	reports := once.New(client, "/once/nightly", once.WithKeep(31))
	for range 2 {
		ran, err := reports.Do(ctx, "2030-01-31", func(ctx context.Context, token int64) error { return nil })
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("ran:", ran)
	}
	// Output:
	// ran: true
	// ran: false
}
