package protocol

import (
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"
)

// passedSuffix makes the name of a node's mark.
//
// A holder that has nobody ahead says so when it leaves: the transaction that deletes its node first creates another
// one, the mark, and deletes that, too. Nobody ever sees the mark, but who watches for its creation hears of it, before
// it hears of the deletion. Whoever deletes the node otherwise, because its contender has died, has given up, or is
// somebody else's, leaves no mark. So whoever has heard of the mark knows that everybody up to that node is gone, and
// for good, as numbers only grow.
//
// Should the node go without its mark, the watch for that would stay: those who have it make and delete the mark
// themselves then. The others that watch for it have heard of the node's end before, as events come in order, and so
// know this for what it is.
const passedSuffix = "-passed"

// marking is what makes a mark be heard of.
func marking(node string, acl []zk.ACL) []any {
	return []any{
		&zk.CreateRequest{Path: node + passedSuffix, Acl: acl, Flags: zk.FlagEphemeral},
		&zk.DeleteRequest{Path: node + passedSuffix, Version: -1},
	}
}

// passing is what deletes the node of a holder that has nobody ahead.
func passing(node string, acl []zk.ACL) []any {
	return append(marking(node, acl), &zk.DeleteRequest{Path: node, Version: -1})
}

// passingSize is how much room the operations that passing returns take, at most.
func passingSize(node string, acl []zk.ACL) int {
	size := 3*(operationOverhead+len(node)) + 2*len(passedSuffix)
	for _, a := range acl {
		size += operationOverhead + len(a.Scheme) + len(a.ID)
	}
	return size
}

// operationOverhead is what an operation, or an entry of an ACL, takes in a transaction at most, without its strings.
const operationOverhead = 32

// pass deletes the node of a holder that has nobody ahead. It returns [zk.ErrNoNode] if somebody else had done so.
func (l *Line) pass(ctx context.Context, s *Session, node string) error {
	s.engage()
	defer s.disengage()
	repeated := false
	_, err := Do(ctx, s, func(c *zk.Conn) (struct{}, error) {
		_, err := c.Multi(passing(node, l.client.acl)...)
		if repeated && errors.Is(err, zk.ErrNoNode) {
			err = nil // it was the attempt before
		}
		repeated = repeated || outcomeOf(err) == unknown
		return struct{}{}, err
	})
	if err == nil || errors.Is(err, zk.ErrNoNode) || outcomeOf(err) != definite || s.Err() != nil {
		return err
	}
	return s.remove(ctx, node) // we may not create the mark, or somebody has
}

// passed returns the watch for the mark of a node, and sets it if there is none. It counts for as long as the other
// watch stands, which is on the node itself and must have been set.
func (t *watchTable) passed(node string, of *watch) *watch {
	mark := node + passedSuffix
	w := t.set(mark, func(c *zk.Conn, w *watch) error {
		_, _, _, err := c.ExistsW(mark)
		if err == nil {
			t.on(node) // or nobody would hear of its end
		}
		return err
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	w.of = of
	return w
}

// marked tells whether there is a watch for the mark of a node.
func (t *watchTable) marked(node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watches[node+passedSuffix] != nil
}

var errNotWatched = errors.New("watch not set yet")

// unmark has the watch for the mark of a node fire that is gone and has left none.
func (t *watchTable) unmark(node string) {
	s := t.session
	if !t.marked(node) {
		return
	}
	s.client.spawn(func() {
		var above []string // the line's node, and more, if that is gone: for the moment of the transaction only
		again := s.client.newBackOff()
		for t.marked(node) {
			ops := marking(node, s.client.acl)
			for _, dir := range above {
				ops = slices.Insert(ops, 0, any(&zk.CreateRequest{Path: dir, Acl: s.client.acl}))
				ops = append(ops, &zk.DeleteRequest{Path: dir, Version: -1})
			}
			_, err := Do(s.life, s, func(c *zk.Conn) (struct{}, error) {
				_, err := c.Multi(ops...)
				return struct{}{}, err
			})
			next := parentOf(node)
			if len(above) > 0 {
				next = parentOf(above[len(above)-1])
			}
			switch {
			case errors.Is(err, zk.ErrNoNode) && next != "/":
				above = append(above, next)
				continue
			case errors.Is(err, zk.ErrNodeExists) && len(above) > 0: // again
				above = nil
				continue
			case err != nil:
				if s.Err() == nil {
					s.client.log.Warn("watch not removed", "node", node, "error", err)
				}
				return
			}
			// It would have fired before the answer, if it had been set. After a reconnect it is set later than that.
			if t.marked(node) && s.client.pause(s.life, s.Done(), again.NextBackOff(), errNotWatched) != nil {
				return
			}
		}
	})
}
