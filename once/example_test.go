package once_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
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

// A job that cron starts on three machines each night.
func Example() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	nightly := func(day string) error {
		reports := once.New(client, "/once/reports")
		ran, err := reports.Do(ctx, day, func(ctx context.Context, r *once.Run) error {
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
	client, stop := connect()
	defer stop()

	bills := once.New(client, "/once/bills", once.WithKeep(24))
	for attempt := 1; attempt <= 3; attempt++ {
		ran, err := bills.Do(ctx, "2030-01", func(context.Context, *once.Run) error {
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

// An operator looks at what is done, and lets a month run again.
func ExampleOnce_Forget() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	bills := once.New(client, "/once/bills", once.WithRetention(365*24*time.Hour))
	for _, month := range []string{"2030-01", "2030-02"} {
		_, err := bills.Do(ctx, month, func(ctx context.Context, r *once.Run) error {
			fmt.Println("writing the bill of", r.Key())
			return r.Err()
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	for key, err := range bills.Keys(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(key.Name, "is done")
	}

	if err := bills.Forget(ctx, "2030-02"); err != nil {
		log.Fatal(err)
	}
	done, err := bills.Done(ctx, "2030-02")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("2030-02 is done:", done)
	// Output:
	// writing the bill of 2030-01
	// writing the bill of 2030-02
	// 2030-01 is done
	// 2030-02 is done
	// 2030-02 is done: false
}
