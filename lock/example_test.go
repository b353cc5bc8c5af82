package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
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

// A job that is not worth waiting for: if another process does it right now, that is enough.
func ExampleMutex_TryDo() {
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

	sweeping := lock.New(client, "/locks/sweep")
	sweep := func(ctx context.Context, _ *lock.Lease) error {
		_, err := sweeping.TryLock(ctx) // what another process would get now
		fmt.Println("sweeping; another one is told:", errors.Is(err, lock.ErrLocked))
		return nil
	}
	if err := sweeping.TryDo(ctx, sweep); err != nil {
		log.Fatal(err)
	}
	// Output:
	// sweeping; another one is told: true
}

// Lock and Unlock are for work that does not fit into one function.
func ExampleMutex_Lock() {
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

	lease, err := lock.New(client, "/locks/migration").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	work, cancel := lease.Context(ctx) // ends when the lease does
	defer cancel()
	fmt.Println("at work:", work.Err())

	if err := lease.Unlock(ctx); err != nil {
		log.Fatal(err) // it was lost before
	}

	fmt.Println("given back:", errors.Is(lease.Err(), protocol.ErrReleased))
	<-work.Done()
	fmt.Println(context.Cause(work))
	// Output:
	// at work: <nil>
	// given back: true
	// lock: /locks/migration: released
}

func ExampleMutex_Contenders() {
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

	mutex := lock.New(client, "/locks/deploy", lock.WithData([]byte("build 42 on ci-3")))
	lease, err := mutex.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	line, err := mutex.Contenders(ctx)
	if err != nil {
		log.Fatal(err)
	}

	for _, c := range line {
		fmt.Printf("%s, holds it: %t\n", c.Data, c.Token == lease.Token())
	}
	// Output:
	// build 42 on ci-3, holds it: true
}

// A store is a resource outside of ZooKeeper that a lock protects. It refuses writes with a token
// older than the newest it has seen.
type store struct {
	newest int64
	data   string
}

func (s *store) Write(token int64, data string) error {
	if token < s.newest {
		return errors.New("written by a former holder")
	}
	s.newest, s.data = token, data
	return nil
}

// A holder may be paused for a minute between checking its lease and writing. Only the resource
// that it writes to can detect that.
func ExampleLease_Token() {
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
	mutex := lock.New(client, "/locks/store")
	var store store

	slow, err := mutex.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}

	// While slow is paused, its lock is taken away and goes to the next holder.
	if err := mutex.Break(ctx, slow.Node()); err != nil {
		log.Fatal(err)
	}

	next, err := mutex.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer next.Unlock(ctx)

	fmt.Println("next:", store.Write(next.Token(), "new"))
	fmt.Println("slow:", store.Write(slow.Token(), "old"))
	fmt.Println("data:", store.data)
	// Output:
	// next: <nil>
	// slow: written by a former holder
	// data: new
}

// ZooKeeper itself refuses the writes of a former holder, where the data is in ZooKeeper.
func ExampleLease_Multi() {
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
	session, err := client.Session(ctx)
	if err != nil {
		log.Fatal(err)
	}

	if _, err := session.EnsurePath(ctx, "/config"); err != nil {
		log.Fatal(err)
	}

	mutex := lock.New(client, "/locks/config")
	lease, err := mutex.Lock(ctx)
	if err != nil {
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

// A batch job asks for the lock of a long-lived holder, which gives it back when it can.
func ExampleMutex_Revoke() {
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

	mutex := lock.New(client, "/locks/index")
	lease, err := mutex.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	revoked := lease.Revoked() // from here on it hears of requests

	// Another process finds the node's name with Contenders.
	if err := mutex.Revoke(ctx, lease.Node()); err != nil {
		log.Fatal(err)
	}

	<-revoked
	fmt.Println("still held:", lease.Err() == nil)
	if err := lease.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// still held: true
}

// Several locks at once, without deadlocks whatever their order.
func ExampleLockAll() {
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

	from, to := lock.New(client, "/accounts/1"), lock.New(client, "/accounts/2")
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

// A Simple leaves no node while it waits, and has no order.
func ExampleNewSimple() {
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

	simple := lock.NewSimple(client, "/locks/cache")
	err = simple.Do(ctx, func(ctx context.Context, lease *lock.Lease) error {
		fmt.Println("filling the cache")
		return ctx.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// filling the cache
}

// The goroutines of this process wait for each other inside it, and have one node in line.
func ExampleWithLocalQueue() {
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

	mutex := lock.New(client, "/locks/ledger", lock.WithLocalQueue())
	var wait sync.WaitGroup
	balance := 0
	for range 10 {
		wait.Go(func() {
			err := mutex.Do(ctx, func(context.Context, *lock.Lease) error {
				balance++
				return nil
			})
			if err != nil {
				log.Fatal(err)
			}
		})
	}
	wait.Wait()
	fmt.Println("balance:", balance)
	// Output:
	// balance: 10
}

// This process takes the lock for each of many entries, and goes to the ensemble once.
func ExampleWithLinger() {
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
	// Output:
	// entries: 1000
}
