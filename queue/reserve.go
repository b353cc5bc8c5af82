package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/batch"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A transaction reserves some of the entries that were read.
type transaction struct {
	entries []*reading
	claims  []*claim
	ops     []any
	ends    []int // of the operations about each, of which the last one reserves it
}

// transaction returns one for as many of the first entries as fit into it.
func (c *consumer) transaction(presence string, entries []*reading, counts bool) *transaction {
	dir := heldDir(presence)
	t := &transaction{ops: []any{
		&zk.CheckVersionRequest{Path: c.session.Path(presence), Version: -1},
		c.setting(c.session, dir, nil, -1), // whose Stat has the token
	}}
	if time.Since(c.shrunk) > smallFor {
		c.bytes = min(claimBytes, c.limits().Alone)
	}
	size := 0
	for _, r := range entries {
		c.number++
		cl := &claim{record: r.record, data: r.data, counts: counts, node: dir + "/" + layout.HeldEntry(c.number, r.ID)}
		if counts {
			cl.record.Attempts++
		}
		more := append(c.removal(c.session, r), c.creation(c.session, cl.node, cl.record.Append(r.data), 0))
		if size += recipe.MultiSize(more...); size > c.bytes && len(t.claims) > 0 {
			break
		}
		t.entries, t.claims, t.ops = append(t.entries, r), append(t.claims, cl), append(t.ops, more...)
		t.ends = append(t.ends, len(t.ops))
	}
	return t
}

// shrink makes transactions smaller for a while: a server may take less than it should.
func (c *consumer) shrink() { c.bytes, c.shrunk = max(1, c.bytes/4), time.Now() }

// reserve reserves entries, or as many of the first ones as fit into a transaction, all or none. A
// claim says itself whether that was so. reserve returns nil also if others may be tried.
func (c *consumer) reserve(life context.Context, entries []*reading, counts bool) error {
	presence, err := c.presence.use(life, c.session)
	if err != nil {
		return err
	}
	t := c.transaction(presence, entries, counts)
	c.claims.Add(int64(len(t.claims)))
	var token int64
	unknown := false
	done, err := recipe.DoOnce(life, c.session, func(conn *zk.Conn) (result, error) {
		answers, err := recipe.Multi(conn, t.ops...)
		if err == nil {
			token = answers[1].Stat.Mzxid
		}
		return result{answers}, err
	}, func(ctx context.Context) (result, bool, error) {
		stat, err := c.session.Exists(ctx, c.path+t.claims[0].node)
		if unknown = err != nil; unknown || stat == nil {
			return result{}, false, cmp.Or(err, errNothingToDo)
		}
		token = stat.Czxid
		return result{}, true, nil
	})
	if err == nil {
		for _, cl := range t.claims {
			cl.token = token
		}
		c.ahead = append(c.ahead, t.claims...)
		c.window.won(t.entries[len(t.entries)-1].found)
		return nil
	}

	if c.session.Err() == nil && (unknown || errors.Is(err, protocol.ErrUncertain)) {
		c.letGo(t.claims...) // those that are there
		return err
	}

	c.claims.Add(-int64(len(t.claims)))
	failed := done.failed(err)
	missing := errors.Is(err, zk.ErrNoNode)
	about := slices.IndexFunc(t.ends, func(end int) bool { return failed < end })
	switch {
	case errors.Is(err, errNothingToDo): // it may have been too large
		c.shrink()
		return c.reserve(life, entries, counts)
	case c.session.Err() != nil:
		return err
	case errors.Is(err, protocol.ErrTooLarge) && len(t.claims) > 1:
		c.shrink()
		c.relist()
	case failed == 0 && missing: // what was reserved with it will be put back by others
		c.presence.discard()
		c.forget()
	case missing && (failed == 1 || failed == t.ends[about]-1):
		c.presence.mend()
		c.relist()
	case failed < 2:
		return err
	case missing, errors.Is(err, zk.ErrBadVersion):
		c.report(protocol.EventCollided, 1, err)
		c.window.lost(len(t.entries), len(t.entries))
	case errors.Is(err, zk.ErrNotEmpty):
		c.setAside(t.entries[about].Node, err)
		c.relist()
	default:
		return err
	}
	return nil
}

// takePlainly removes entries for requests that only take, where none can be reserved. If the answer
// is lost, that an entry is gone does not say who has it.
func (c *consumer) takePlainly(life context.Context, entries []*reading) error {
	for _, r := range entries {
		var taken []*removal
		_, err := transact(life, c.session, func() []any {
			taken = c.requests.Collect(func(q *removal, room *batch.Room) bool {
				if q.reserve || !room.Take(maxOps, 0) { // one of them
					return room.Skip()
				}
				q.claims = []*claim{{record: r.record, data: r.data, gone: true}}
				return true
			})
			if len(taken) == 0 {
				return nil
			}
			return c.removal(c.session, r)
		}, func(bool) {
			for _, q := range taken {
				q.claims = nil
			}
			c.requests.Return(taken)
		}, func(ctx context.Context) (bool, error) {
			stat, err := c.session.Exists(ctx, c.path+r.node)
			if err == nil && (stat == nil || stat.Czxid != r.stat.Czxid) {
				err = uncertain(zk.ErrNoNode)
			}
			return false, err
		})
		switch {
		case errors.Is(err, errNothingToDo):
			return nil
		case errors.Is(err, protocol.ErrUncertain):
			err = unsure(taken[0].claims, err)
			fallthrough
		case err == nil:
			c.requests.Answer(err, taken...)
		case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
			c.window.lost(1, 1)
		case errors.Is(err, zk.ErrNotEmpty), errors.Is(err, zk.ErrNoAuth):
			c.setAside(r.Node, err)
		default:
			return err
		}
	}
	return nil
}
