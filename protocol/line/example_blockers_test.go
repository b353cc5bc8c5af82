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

// A Warehouse is used by imports together, or by exports together, in order of arrival.
type Warehouse struct{ line *line.Line }

// NewWarehouse returns the warehouse at path.
func NewWarehouse(c *protocol.Client, path string) *Warehouse {
	what := recipe.New(c, "warehouse", path)
	return &Warehouse{line.New(what, line.Kind{Name: "import-"}, line.Kind{Name: "export-"})}
}

// Use waits until all earlier contenders of the other kind are gone.
func (w *Warehouse) Use(ctx context.Context, kind string) (*recipe.Grant, error) {
	return w.line.Enter(ctx, line.Request{Kind: kind, Blockers: others})
}

// TryUse is Use without the wait.
func (w *Warehouse) TryUse(ctx context.Context, kind string) (*recipe.Grant, error) {
	return w.line.Enter(ctx, line.Request{Kind: kind, Blockers: others, Try: true})
}

// others returns the nearest earlier contender of the other kind. When that is gone, others is
// called again.
func others(names []line.Name, self int) []line.Name {
	for i := self - 1; i >= 0; i-- {
		if names[i].Kind != names[self].Kind {
			return names[i : i+1]
		}
	}
	return nil
}

// Blockers can say which contenders wait for which others.
func ExampleBlockers() {
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

	w := NewWarehouse(client, "/warehouse")
	first, err := w.Use(ctx, "import-")
	if err != nil {
		log.Fatal(err)
	}
	second, err := w.Use(ctx, "import-")
	if err != nil {
		log.Fatal(err)
	}
	_, err = w.TryUse(ctx, "export-")
	fmt.Println("busy:", errors.Is(err, line.ErrBusy))

	if err := errors.Join(first.Release(ctx), second.Release(ctx)); err != nil {
		log.Fatal(err)
	}
	export, err := w.TryUse(ctx, "export-")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(export.Err())
	// Output:
	// busy: true
	// <nil>
}
