package group_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/zkrecipes/zkrecipes/group"
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

func Example() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	g := group.New(client, "/services/search")
	me, err := g.Join(ctx, "host-4", []byte("10.0.0.4:8080"))
	if err != nil {
		log.Fatal(err)
	}
	defer me.Leave(ctx)

	for peers, err := range g.Watch(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		for _, p := range peers {
			fmt.Printf("%s at %s\n", p.Name, p.Data)
		}
		break // a service goes on
	}
	// Output:
	// host-4 at 10.0.0.4:8080
}

// A member that must not act while another one may have its name looks at Joined.
func ExampleMember_Changes() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	me, err := group.New(client, "/services/search").Join(ctx, "host-4", nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("joined:", me.Joined())
	go me.Leave(ctx)
	for range me.Changes() { // ends when the member has left
		fmt.Println("joined:", me.Joined())
	}
	fmt.Println("left")
	// Output:
	// joined: true
	// left
}

// Each member consumes its partitions, and gives them up when they go to another member.
func ExampleMember_Share() {
	ctx, cancel := context.WithCancel(context.Background())
	client, stop := connect()
	defer stop()

	g := group.New(client, "/consumers")
	me, err := g.Join(ctx, "host-4", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer me.Leave(context.WithoutCancel(ctx))

	err = me.Share(ctx, []string{"partition-7"}, func(ctx context.Context, a *group.Assignment) error {
		fmt.Println("consuming", a.Item())
		cancel() // a service goes on
		<-ctx.Done()
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// consuming partition-7
	// <nil>
}

// A coordinator begins once three workers are there.
func ExampleGroup_Await() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	workers := group.New(client, "/workers")
	for _, name := range []string{"host-1", "host-2", "host-3"} { // each in a process of its own
		me, err := workers.Join(ctx, name, nil)
		if err != nil {
			log.Fatal(err)
		}
		defer me.Leave(ctx)
	}

	peers, err := workers.Await(ctx, 3)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range peers { // in order of joining
		fmt.Println(p.Name)
	}
	// Output:
	// host-1
	// host-2
	// host-3
}

// The partitions change while they are shared.
func ExampleMember_ShareAll() {
	ctx, cancel := context.WithCancel(context.Background())
	client, stop := connect()
	defer stop()

	// A pod that is started again has its name at once, and its partitions if that takes no minute.
	g := group.New(client, "/consumers", group.WithIdentity("pod-4"), group.WithGrace(time.Minute))
	me, err := g.Join(ctx, "host-4", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer me.Leave(context.WithoutCancel(ctx))

	partitions := make(chan []string, 1)
	partitions <- []string{"partition-7"}
	err = me.ShareAll(ctx, partitions, func(ctx context.Context, a *group.Assignment) error {
		fmt.Println("consuming", a.Item())
		switch a.Item() {
		case "partition-7":
			partitions <- []string{"partition-8"}
		case "partition-8":
			cancel() // a service goes on
		}
		<-ctx.Done()
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// consuming partition-7
	// consuming partition-8
	// <nil>
}

// A load balancer follows the weights that its backends set.
func ExampleGroup_WatchData() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	backends := group.New(client, "/backends")
	me, err := backends.TryJoin(ctx, "host-4", []byte("weight 1"))
	if err != nil {
		log.Fatal(err)
	}
	defer me.Leave(ctx)

	for peers, err := range backends.WatchData(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s\n", peers[0].Name, peers[0].Data)
		if string(peers[0].Data) == "weight 2" {
			break
		}
		if err := me.Set(ctx, []byte("weight 2")); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// host-4: weight 1
	// host-4: weight 2
}
