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

// A limit that an operator sets, and all processes follow.
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

// A counter that each process may count up, to a limit.
func ExampleValue_Update() {
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

	tickets := value.New(client, "/tickets")
	soldOut := errors.New("sold out")
	for {
		state, err := tickets.Update(ctx, func(old value.State) ([]byte, error) {
			n, _ := strconv.Atoi(string(old.Data)) // 0 if it is not set
			if n == 2 {
				return nil, soldOut
			}
			return []byte(strconv.Itoa(n + 1)), nil
		})
		if errors.Is(err, soldOut) {
			fmt.Println(soldOut)
			break
		} else if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("ticket %s\n", state.Data)
	}
	// Output:
	// ticket 1
	// ticket 2
	// sold out
}

func ExampleValue_Get() {
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

	flag := value.New(client, "/flags/dark-mode")
	_, err = flag.Get(ctx)
	fmt.Println("before it is set:", errors.Is(err, value.ErrUnset))
	if _, err := flag.Set(ctx, []byte("on")); err != nil {
		log.Fatal(err)
	}
	state, err := flag.Get(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("it is %s\n", state.Data)
	if err := flag.Delete(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// before it is set: true
	// it is on
}
