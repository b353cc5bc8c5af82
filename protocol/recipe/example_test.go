package recipe_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A process waits until a node has other data.
func ExampleSession_Watch() {
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
	session, err := recipe.SessionOf(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := session.EnsurePath(ctx, "/config"); err != nil {
		log.Fatal(err)
	}

	watch := session.Watch("/config")
	if _, err := watch.Ready(ctx); err != nil {
		log.Fatal(err)
	}

	fmt.Printf("now %q\n", watch.Data())

	if _, err := session.Set(ctx, "/config", []byte("verbose"), -1); err != nil {
		log.Fatal(err)
	}
	if err := watch.Wait(ctx); err != nil {
		log.Fatal(err)
	}

	fmt.Println("it has changed")
	// Output:
	// now ""
	// it has changed
}

// A recipe of one's own: a flag that is up for as long as its process has it. The whole way is in
// docs/writing-a-recipe.md.
type flag struct{ recipe *recipe.Recipe }

func newFlag(c *protocol.Client, path string) *flag {
	return &flag{recipe.New(c, "flag", path)}
}

func (f *flag) raise(ctx context.Context) (*recipe.Grant, error) {
	return f.recipe.Acquire(ctx, nil, func(s *recipe.Session) (*recipe.Grant, error) {
		own, err := s.CreateOwn(ctx, recipe.OwnNode{Dir: f.recipe.Path(), Prefix: s.NewOwner().String() + "-flag-"})
		if err != nil {
			return nil, err
		}
		g, err := f.recipe.NewGrant(ctx, s, f.recipe.Path()+"/"+own.Name(), own.Czxid(),
			func(ctx context.Context, _ *recipe.Session) error { return own.Withdraw(ctx) })
		if err != nil {
			own.Withdraw(ctx)
		}
		return g, err
	})
}

func ExampleRecipe() {
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

	up, err := newFlag(client, "/flags/maintenance").raise(ctx)
	if err != nil {
		log.Fatal(err)
	}

	owner, rest, ok := recipe.ParseOwner(up.Node())
	fmt.Println("of this session:", ok && owner.Session == up.Session().ID(), rest)

	if err := up.Release(ctx); err != nil {
		log.Fatal(err)
	}

	fmt.Println(errors.Is(up.Err(), protocol.ErrReleased))
	// Output:
	// of this session: true flag-0000000000
	// true
}
