package survey

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A node is a child with its data and Stat.
type node struct {
	name
	data []byte
	stat *zk.Stat
}

// created returns the time of a node's creation, by the server's clock.
func created(stat *zk.Stat) time.Time {
	if isHidden(stat) {
		return time.Time{}
	}
	return time.UnixMilli(stat.Ctime).UTC()
}

// statOf returns the Stat of a node that can't be read, or nil if there is no node. ZooKeeper
// 3.8.4, 3.9.2 and later hide the Stat: then it's all zero.
func statOf(ctx context.Context, s *recipe.Session, path string) (*zk.Stat, error) {
	stat, err := s.Exists(ctx, path)
	if errors.Is(err, zk.ErrNoAuth) {
		return new(zk.Stat), nil
	}
	return stat, err
}

// isHidden reports whether only the name of a node is known.
func isHidden(stat *zk.Stat) bool { return stat.Czxid == 0 }

// isEphemeral reports whether a node ends with its session. Containers and TTL nodes have no owner
// in their Stat.
func isEphemeral(stat *zk.Stat) bool { return stat.EphemeralOwner != 0 }

// contender returns the description of a contender in this state.
func (n node) contender(state State) Contender {
	c := Contender{
		Node: n.name.node, State: state, Library: n.library,
		Token: n.stat.Czxid, Since: created(n.stat), Owner: OwnerOf(n.data),
		Session: n.stat.EphemeralOwner, Data: n.data[:min(len(n.data), maxData)], Cut: len(n.data) > maxData,
	}

	// zkr writes to its node when it gets the lock, so the server's time of that write is exact.
	if o := c.Owner; state == Holds && !o.HeldSince.IsZero() {
		c.Held = o.HeldSince
		if o.AskedBack.IsZero() && n.stat.Mtime > 0 {
			c.Held = time.UnixMilli(n.stat.Mtime).UTC()
		}
	}

	switch {
	case isHidden(n.stat):
		c.Session = n.session
	case !isEphemeral(n.stat):
		c.Orphan = "not ephemeral: it stays when its owner has gone"
	case n.session != 0 && n.session != n.stat.EphemeralOwner:
		c.Orphan = fmt.Sprintf("its name is of session %#x", n.session)
	}
	return c
}

func rank(c Contender) int {
	if c.State == Waits {
		return 1
	}
	return 0
}
