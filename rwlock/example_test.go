package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

func Example() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	// Goroutines of this process that read share a node.
	catalogue := rwlock.New(client, "/locks/catalogue", rwlock.WithLocalSharing())
	err := catalogue.Do(ctx, func(ctx context.Context, lease *rwlock.Lease) error {
		// No other process reads or writes. The ctx is cancelled if the lock is lost.
		fmt.Println("writing, alone:", lease.Exclusive())
		return ctx.Err()
	})
	if err != nil {
		log.Fatal(err)
	}

	err = catalogue.RDo(ctx, func(ctx context.Context, lease *rwlock.Lease) error {
		other, err := catalogue.TryRLock(ctx)
		if err != nil {
			return err
		}
		defer other.Unlock(context.WithoutCancel(ctx))
		fmt.Println("reading, with others:", other.Err() == nil && lease.Err() == nil)

		_, err = catalogue.TryLock(ctx)
		fmt.Println("no writer gets in among readers:", errors.Is(err, rwlock.ErrLocked))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// writing, alone: true
	// reading, with others: true
	// no writer gets in among readers: true
}

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

// A writer that wants to go on reading what it wrote does not let other writers in between.
func ExampleLease_Downgrade() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	m := rwlock.New(client, "/locks/prices", rwlock.WithData([]byte("nightly import")))
	writing, err := m.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer writing.Unlock(ctx) // does nothing after a downgrade

	reading, err := writing.Downgrade(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer reading.Unlock(ctx)

	line, err := m.Contenders(ctx)
	if err != nil {
		log.Fatal(err)
	}

	for _, c := range line {
		fmt.Printf("%s, writes: %t, holds it: %t\n", c.Data, c.Exclusive, c.Holds)
	}
	fmt.Println("the write lease is", errors.Unwrap(writing.Err()))
	// Output:
	// nightly import, writes: false, holds it: true
	// the write lease is released
}

// Some processes of the fleet use Apache Curator's InterProcessReadWriteLock on this path.
func ExampleWithSpelling() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	m := rwlock.New(client, "/locks/catalogue", rwlock.WithSpelling(rwlock.Curator))
	lease, err := m.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)
	fmt.Println("spelt as Curator does:", strings.Contains(lease.Node(), "__READ__"))
	// Output:
	// spelt as Curator does: true
}
