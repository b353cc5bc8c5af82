package recipe

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
)

// Replacing is for a recipe that is about to put another node in the place of g's node, in one
// transaction (a reader's node in the place of a writer's, for example). Until the recipe calls
// end, the deletion of g's node doesn't end g, and [Grant.Release] calls remove, which must delete
// both nodes. A second call must wait for the first call's end.
//
// If the transaction succeeds, the recipe ends g with [Grant.ReleaseWith] before it calls end. If
// it fails, the recipe calls end with its error, and g goes on (remove stays in force). But if the
// error is [zk.ErrNoNode], g's node is gone and g is lost. Replacing returns [Grant.Err] if g has
// ended.
func (g *Grant) Replacing(remove func(context.Context, *Session) error) (end func(error), err error) {
	if err := g.Err(); err != nil {
		return nil, err
	}

	g.mu.Lock()
	defer g.mu.Unlock()
	if g.life.Err() != nil {
		return nil, context.Cause(g.life)
	}

	done := make(chan struct{})
	g.replacing, g.remove = done, &remove
	return func(failed error) {
		g.mu.Lock()
		g.replacing = nil
		close(done)
		g.mu.Unlock()
		if errors.Is(failed, zk.ErrNoNode) {
			g.lose(g.nodeDeleted())
		}
	}, nil
}
