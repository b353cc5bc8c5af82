package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
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
	size, most := protocol.MultiSize(t.ops...), min(claimBytes, c.session.RequestLimit())
	for _, r := range entries {
		c.number++
		cl := &claim{record: r.record, data: r.data, counts: counts, node: dir + "/" + layout.HeldEntry(c.number, r.ID)}
		if counts {
			cl.record.Attempts++
		}
		more := append(c.removal(c.session, r), c.creation(c.session, cl.node, cl.record.Append(r.data), 0))
		if size += protocol.MultiSize(more...); size > most && len(t.claims) > 0 {
			break
		}
		t.entries, t.claims, t.ops = append(t.entries, r), append(t.claims, cl), append(t.ops, more...)
		t.ends = append(t.ends, len(t.ops))
	}
	return t
}

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
	done, err := protocol.DoOnce(life, c.session, func(conn *zk.Conn) (result, error) {
		answers, err := protocol.Multi(conn, t.ops...)
		if err == nil {
			token = answers[1].Stat.Mzxid
		}
		return result{answers}, err
	}, func(ctx context.Context) (result, bool, error) {
		stat, err := c.session.Exists(ctx, c.path+t.claims[0].node)
		if unknown = err != nil; unknown || stat == nil {
			return result{}, false, err
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
	case c.session.Err() != nil:
		return err
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

// takePlainly removes entries of which none could be reserved. Where others may be, its error wraps
// [zk.ErrNoNode]. If the answer is lost, that an entry is gone does not say who has it.
func (c *consumer) takePlainly(life context.Context, work *protocol.Session, entries []*reading) error {
	var ops []any
	var about []*reading // of each operation
	for _, r := range entries {
		removal := c.removal(work, r)
		ops, about = append(ops, removal...), append(about, slices.Repeat([]*reading{r}, len(removal))...)
	}
	first := entries[0]
	done, err := transact(life, work, func() []any { return ops }, func() {}, func(ctx context.Context) (bool, error) {
		stat, err := work.Exists(ctx, c.path+first.node)
		if err == nil && (stat == nil || stat.Czxid != first.stat.Czxid) {
			err = uncertain(zk.ErrNoNode)
		}
		return false, err
	})
	failed := done.failed(err)
	switch {
	case failed < 0:
		return err
	case errors.Is(err, zk.ErrNotEmpty), errors.Is(err, zk.ErrNoAuth):
		c.setAside(about[failed].Node, err)
	case !errors.Is(err, zk.ErrBadVersion):
		return err
	}
	return fmt.Errorf("%w: %w", zk.ErrNoNode, err)
}
