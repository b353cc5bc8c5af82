package recipe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// guardAfter is how long something must be held before its node is watched, which costs a packet.
const guardAfter = 20 * time.Millisecond

func (g *Grant) beginWatch() {
	g.mu.Lock()
	g.guard = nil // a timer takes memory
	g.mu.Unlock()
	g.startWatch()
}

// Guard has the grant's node watched from now on, instead of after 20 ms. If the session watches
// the node already, that costs no request. It does not block. It is safe for concurrent use.
func (g *Grant) Guard() {
	g.mu.Lock()
	begins := g.guard != nil && g.guard.Stop()
	if begins {
		g.guard = nil
	}
	g.mu.Unlock()
	if begins {
		g.startWatch()
	}
}

// startWatch starts watch unless the grant is over. It does not block.
func (g *Grant) startWatch() {
	if g.life.Err() == nil {
		g.session.bound.Spawn(g.watch)
	}
}

// watch tells the holder when its node is deleted. It returns once the node is watched, so that no
// goroutine waits for each grant. When the node has changed, it is called again.
func (g *Grant) watch() {
	warned := false
	for pause := 50 * time.Millisecond; g.life.Err() == nil; {
		w := g.session.Background().watch(g.node)
		stat, err := w.Ready(g.session.bound.Life) // not g's, which would then need a channel
		if err == nil && !g.owns(stat) {
			// What all share may be about the node before, read before a reconnect.
			if _, err = w.Recheck(g.session.bound.Life); err == nil {
				err = zk.ErrNoNode
			}
		}
		if err == nil {
			w.AfterChange(g.life, func() {
				if !w.shared.Deleted {
					g.startWatch()
				} else if g.life.Err() == nil {
					g.session.bound.Spawn(g.deleted)
				}
			})
			return
		}

		// A node that may not be read has no watch. But the server says whether there is one.
		if g.life.Err() == nil && !errors.Is(err, zk.ErrNoNode) {
			if !warned {
				g.recipe.access.View.Log.Warn("node of a grant not watched", "node", g.node, "error", err)
				warned = true
			}
			_, err = g.stat(g.life)
		}
		if errors.Is(err, zk.ErrNoNode) {
			g.awaitReplacement()
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

// deleted ends the grant after the event that says that its node is gone. No server that has let the
// session in makes up such an event for a node that the session has read, so there is nothing to
// ask. By then another contender may hold what g stands for.
func (g *Grant) deleted() {
	g.awaitReplacement()
	g.lose(fmt.Errorf("%w: %w: %s", protocol.ErrLost, protocol.ErrNodeDeleted, g.Node()))
}

// missing finds out whether the node is gone, which a server that lags may have said too early, and
// ends the grant if so. The node is deleted all the same: what is believed to be gone must not
// stand in line for the rest of the session. A name that may be another node's by now is left
// alone.
func (g *Grant) missing(ctx context.Context) (gone bool, err error) {
	if err := g.session.of(ctx).bound.Sync(ctx, g.node); err != nil {
		return false, err
	}
	switch _, err := g.stat(ctx); {
	case errors.Is(err, zk.ErrNoAuth): // so it is there
		return false, nil
	case !errors.Is(err, zk.ErrNoNode):
		return false, err
	}
	g.lose(fmt.Errorf("%w: %w: %s", protocol.ErrLost, protocol.ErrNodeDeleted, g.Node()))
	if !g.named {
		g.session.bound.Spawn(func() { g.session.Background().remove(g.session.bound.Life, g.node) })
	}
	return true, nil
}

// stat returns the Stat of the grant's node, or [zk.ErrNoNode] if that is gone. It returns
// [zk.ErrNoAuth] if the node is there, may not be read, and the server hides its Stat, too.
func (g *Grant) stat(ctx context.Context) (*zk.Stat, error) {
	stat, err := g.session.of(ctx).bound.Exists(ctx, g.node)
	switch {
	case errors.Is(err, zk.ErrNoAuth) && g.named:
		// The Stat of the grant's own node could be read once, so this may be another's node.
		return nil, zk.ErrNoNode
	case err == nil && (stat == nil || !g.owns(stat)):
		return nil, zk.ErrNoNode
	}
	return stat, err
}

// Verify asks the servers whether the grant's node is there, behind a Sync, and ends the grant if
// it is not. It blocks until they have answered, and returns [Grant.Err]. Without an answer it
// returns ctx's error, one that wraps [protocol.ErrLost] or [protocol.ErrClosed], or the server's
// own.
func (g *Grant) Verify(ctx context.Context) error {
	if _, err := g.missing(ctx); err != nil {
		return err
	}
	return g.Err()
}

// awaitReplacement blocks while g is being replaced, which deletes its node too.
func (g *Grant) awaitReplacement() {
	g.mu.Lock()
	replacing := g.replacing
	g.mu.Unlock()
	if replacing != nil {
		select {
		case <-replacing:
		case <-g.Done():
		}
	}
}
