package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
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

	importer := lock.New(client, "/locks/order-import")
	err = importer.Do(ctx, func(ctx context.Context, lease *lock.Lease) error {
		// Of all processes that get here, one does at a time. Its ctx is cancelled if it loses the
		// lock.
		fmt.Println("importing, with a token:", lease.Token() > 0)
		return ctx.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// importing, with a token: true
}

// connect returns a client of an embedded server, and what ends both.
func connect() (client *protocol.Client, stop func()) {
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	client, err = protocol.Connect(context.Background(), server.ConnectString())
	if err != nil {
		log.Fatal(err)
	}
	return client, func() { client.Close(); server.Close() }
}

// ZooKeeper itself refuses the writes of a former holder, where the data is in ZooKeeper.
func ExampleLease_Multi() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()
	mutex := lock.New(client, "/locks/config")
	lease, err := mutex.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	if _, err := lease.Multi(ctx, &zk.CreateRequest{Path: "/config"}); err != nil {
		log.Fatal(err)
	}
	write := func(data string) error {
		_, err := lease.Multi(ctx, // all of it, or nothing
			&zk.SetDataRequest{Path: "/config", Data: []byte(data), Version: -1},
			&zk.CreateRequest{Path: "/config/change-", Flags: zk.FlagSequence})
		return err
	}

	fmt.Println("while it is held:", write("new"))
	if err := mutex.Break(ctx, lease.Node()); err != nil {
		log.Fatal(err)
	}

	fmt.Println("after it was lost:", errors.Is(write("late"), protocol.ErrLost))
	// Output:
	// while it is held: <nil>
	// after it was lost: true
}

// Several locks at once, without deadlocks whatever their order. Many goroutines of this process
// use them, so they wait for each other inside it and have one node in line.
func ExampleLockAll() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	from := lock.New(client, "/accounts/1", lock.WithLocalQueue())
	to := lock.New(client, "/accounts/2", lock.WithLocalQueue())
	leases, err := lock.LockAll(ctx, to, from)
	if err != nil {
		log.Fatal(err)
	}
	work, cancel := leases.Context(ctx) // ends when one of them is lost
	defer cancel()
	fmt.Println("holds", len(leases.All()), "locks:", work.Err() == nil)
	if err := leases.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// holds 2 locks: true
}

// A job that isn't worth waiting for: if another process does it right now, that is enough. (A
// Simple's try is the cheapest.)
func ExampleNewSimple() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	simple := lock.NewSimple(client, "/locks/cache", lock.WithData([]byte("cache-2")))
	err := simple.TryDo(ctx, func(ctx context.Context, lease *lock.Lease) error {
		_, err := simple.TryLock(ctx) // what another process would get now
		fmt.Println("filling the cache; others get ErrLocked:", errors.Is(err, lock.ErrLocked))
		return ctx.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// filling the cache; others get ErrLocked: true
}

// This process takes the lock for each of many entries, and goes to the ensemble once.
func ExampleWithLinger() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	mutex := lock.New(client, "/locks/journal", lock.WithLinger(time.Second), lock.WithLingerLimit(100))
	entries := 0
	for range 1000 {
		err := mutex.Do(ctx, func(context.Context, *lock.Lease) error {
			entries++
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("entries:", entries)

	err := mutex.Do(ctx, func(ctx context.Context, _ *lock.Lease) error {
		line, err := mutex.Contenders(ctx) // as another process sees it
		if err == nil {
			fmt.Println("stays for a second, or until somebody else wants it:", line[0].Lingers)
		}
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// entries: 1000
	// stays for a second, or until somebody else wants it: true
}
