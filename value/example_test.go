package value_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strconv"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
	"github.com/zkrecipes/zkrecipes/value"
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

// A limit that an operator sets, and all processes follow.
func Example() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	limit := value.New(client, "/config/limit")
	for state, err := range limit.Watch(ctx) {
		switch {
		case err != nil:
			log.Fatal(err)
		case state.Unset():
			fmt.Println("no limit")
			if _, err := limit.Set(ctx, []byte("100")); err != nil { // as another process would
				log.Fatal(err)
			}
			continue
		}
		fmt.Printf("limit %s\n", state.Data)
		break
	}
	// Output:
	// no limit
	// limit 100
}

// A counter that each process can count up (to a limit).
func ExampleValue_Update() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	tickets := value.New(client, "/tickets")
	for range 3 {
		state, err := tickets.Update(ctx, func(old value.State) ([]byte, error) {
			n, _ := strconv.Atoi(string(old.Data)) // 0 if it is not set
			if n == 2 {
				return nil, errors.New("sold out")
			}
			return []byte(strconv.Itoa(n + 1)), nil
		})
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Printf("ticket %s\n", state.Data)
	}
	// Output:
	// ticket 1
	// ticket 2
	// value: /tickets: sold out
}
