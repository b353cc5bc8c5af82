package line_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// One editor at a time changes a page, in order of arrival.
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

	what := recipe.New(client, "page", "/pages/home")
	editors := line.New(what, line.Kind{Name: "edit-", Exclusive: true})
	first, err := editors.Enter(ctx, line.Request{Kind: "edit-"})
	if err != nil {
		log.Fatal(err)
	}
	_, err = editors.Enter(ctx, line.Request{Kind: "edit-", Try: true})
	fmt.Println(errors.Is(err, line.ErrBusy), err)

	if err := first.Release(ctx); err != nil {
		log.Fatal(err)
	}
	second, err := editors.Enter(ctx, line.Request{Kind: "edit-"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("tokens increase:", first.Token() < second.Token())
	// Output:
	// true page: /pages/home: busy
	// tokens increase: true
}

// Two workers hold a slot at a time. An operator lists them, and ends the first worker's hold.
func ExampleLine_Break() {
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

	workers := line.New(recipe.New(client, "pool", "/pool"), line.Kind{Name: "slot-"})
	for _, host := range []string{"web-1", "web-2"} {
		grant, err := workers.Enter(ctx, line.Request{Kind: "slot-", Data: []byte(host), Blockers: line.Permits(2)})
		if err != nil {
			log.Fatal(err)
		}
		defer grant.Release(ctx)
	}

	contenders, err := workers.Contenders(ctx)
	if err != nil {
		log.Fatal(err)
	}

	for _, c := range contenders {
		fmt.Printf("%s\n", c.Data)
	}
	if err := workers.Break(ctx, contenders[0].Node); err != nil {
		log.Fatal(err)
	}
	grant, err := workers.Enter(ctx, line.Request{Kind: "slot-", Blockers: line.Permits(2)}) // need not wait
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(grant.Err())
	// Output:
	// web-1
	// web-2
	// <nil>
}
