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

// One editor at a time changes a page, in order of arrival. An operator lists the editors, and ends
// the first editor's hold.
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
	first, err := editors.Enter(ctx, line.Request{Kind: "edit-", Data: []byte("alice"), Blockers: line.Permits(1)})
	if err != nil {
		log.Fatal(err)
	}
	_, err = editors.Enter(ctx, line.Request{Kind: "edit-", Try: true})
	fmt.Println(errors.Is(err, line.ErrBusy), err)

	all, err := editors.Contenders(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s edits\n", all[0].Data)
	if err := editors.Break(ctx, all[0].Node); err != nil {
		log.Fatal(err)
	}

	second, err := editors.Enter(ctx, line.Request{Kind: "edit-"})
	if err != nil {
		log.Fatal(err)
	}
	defer second.Release(ctx)
	fmt.Println("tokens increase:", first.Token() < second.Token())
	// Output:
	// true page: /pages/home: busy
	// alice edits
	// tokens increase: true
}
