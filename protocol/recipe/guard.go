package recipe

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
)

// guardAfter is how old a grant must be before its node is watched. (A watch costs a packet.)
const guardAfter = 20 * time.Millisecond

func (g *Grant) beginWatch() {
	g.mu.Lock()
	g.guard = nil // a timer takes memory
	g.mu.Unlock()
	g.startWatch()
}

// Guard makes the watch on the grant's node begin now instead of after 20 ms. If the session
// watches the node already, that costs no request. It does not block. It is safe for concurrent
// use.
func (g *Grant) Guard() {
	g.mu.Lock()
	// Only one of Guard and the timer begins the watch.
	begins := g.guard != nil && g.guard.Stop()
	g.mu.Unlock()
	if begins {
		g.beginWatch()
	}
}

// startWatch starts watch unless the grant has ended. It does not block.
func (g *Grant) startWatch() {
	if g.life.Err() == nil {
		g.session.bound.Spawn(g.watch)
	}
}

// watch makes the deletion of the node end the grant. It returns once the node is watched so that
// grants need no goroutines. After a change of the node it is called again.
func (g *Grant) watch() {
	warned := false
	for pause := 50 * time.Millisecond; g.life.Err() == nil; {
		w := g.session.Background().watch(g.node)
		stat, err := w.Ready(g.session.bound.Life) // not g's life, which would then need a channel
		if err == nil && !g.owns(stat) {
			// The shared watch can have read an earlier node before a reconnect.
			if _, err = w.Recheck(g.session.bound.Life); err == nil {
				err = zk.ErrNoNode
			}
		}
		if err == nil {
			w.AfterChange(g.life, func() {
				if !w.shared.Deleted {
					g.startWatch()
				} else if g.life.Err() == nil {
					g.session.bound.Spawn(func() { g.deleted(g.life) })
				}
			})

			return
		}

		// A node that can't be read has no watch. But the server says whether it exists.
		if g.life.Err() == nil && !errors.Is(err, zk.ErrNoNode) {
			if !warned {
				g.recipe.access.View.Log.Warn("node of a grant not watched", "node", g.node, "error", err)
				warned = true
			}

			_, err = g.stat(g.life)
		}
		if errors.Is(err, zk.ErrNoNode) {
			g.awaitReplacement(g.life)
			if gone, err := g.missing(g.life); gone {
				return
			} else if err == nil {
				continue
			}
		}

		pause = min(2*pause, g.session.Timeout())
		conn.Sleep(pause, g.life.Done())
	}
}

// deleted ends the grant after the event that its node was deleted. It asks no server: another
// contender can already hold the lock. (No server sends this event for a node that the session has
// read and that still exists.)
func (g *Grant) deleted(ctx context.Context) {
	if g.awaitReplacement(ctx) {
		g.lose(g.nodeDeleted())
	}
}

// missing finds out whether the node is gone (a server that lags may have said so too early), and
// ends the grant if it is. Then it also deletes the node because a node of an ended grant must not
// stand in line for the rest of the session. But it doesn't delete a name that can be another
// node's by now.
func (g *Grant) missing(ctx context.Context) (gone bool, err error) {
	if err := g.session.of(ctx).bound.Sync(ctx, g.node); err != nil {
		return false, err
	}

	switch _, err := g.stat(ctx); {
	case errors.Is(err, zk.ErrNoAuth): // only an existing node can be denied
		return false, nil
	case !errors.Is(err, zk.ErrNoNode):
		return false, err
	}

	g.session.bound.Gone(g.node) // before another member of the session can take the name
	g.lose(g.nodeDeleted())
	if !g.named {
		g.session.bound.Spawn(func() { g.session.Background().remove(g.session.bound.Life, g.node) })
	}

	return true, nil
}

// stat returns the Stat of the grant's node, or [zk.ErrNoNode] if the node is gone. It returns
// [zk.ErrNoAuth] if the node exists and the server also hides its Stat.
func (g *Grant) stat(ctx context.Context) (*zk.Stat, error) {
	stat, err := g.session.of(ctx).bound.Exists(ctx, g.node)
	switch {
	case errors.Is(err, zk.ErrNoAuth) && g.named:
		// We could read the Stat of the grant's own node once, so this can be another node.
		return nil, zk.ErrNoNode
	case err == nil && (stat == nil || !g.owns(stat)):
		return nil, zk.ErrNoNode
	}
	return stat, err
}

// Verify asks the servers (behind a Sync) whether the grant's node exists. If it doesn't, the grant
// ends. It blocks until they have answered, and returns [Grant.Err]. Without an answer it returns
// ctx's error or the server's own. If the session ends, the error wraps [protocol.ErrLost] or
// [protocol.ErrClosed].
func (g *Grant) Verify(ctx context.Context) error {
	if _, err := g.missing(ctx); err != nil {
		return err
	}
	return g.Err()
}

// awaitReplacement blocks while g is being replaced. A replacement deletes g's node, too. If ctx
// ends first, it returns false.
func (g *Grant) awaitReplacement(ctx context.Context) bool {
	g.mu.Lock()
	replacing := g.replacing
	g.mu.Unlock()
	if replacing == nil {
		return true
	}
	select {
	case <-replacing:
		return true
	case <-g.Done():
		return true
	case <-ctx.Done():
		return false
	}
}
