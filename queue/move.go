package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A move is how an entry goes from one place to another.
//
// An entry that comes back gets its old name, and its data as offered. What else is known of it
// stands in a record beside it, which is created in the same transaction. So equal czxids say that
// the two belong together. Whoever reads an entry knows from its name or its version that there may
// be a record: the entry's data is set after its creation. A record alone, whose entry was taken by
// another library, is swept.
type move struct {
	record layout.Record
	data   []byte
	tail   bool  // to a new place
	due    int64 // to the delayed ones, if that is not 0
}

// returnVersions is how many versions entries have that come back to their place, in turn. So a
// consumer that has read an entry before cannot reserve it with the record of that time.
const returnVersions = 8

// ops are the operations that create an entry where it moves, with its record.
func (p *place) ops(s *recipe.Session, m move) []any {
	if m.tail {
		m.record.Node = ""
	}
	if m.due != 0 {
		node := bucketOf(m.due) + "/" + layout.DelayedEntry(m.due, m.record.ID)
		return []any{p.creation(s, node, m.record.Append(m.data), 0)}
	}

	node := "/" + m.record.Node
	m.record.Node = ""
	m.record.Returns++
	record := p.creation(s, returnedPath(m.record.ID), m.record.Append(nil), 0)
	if node == "/" {
		return []any{record, p.creation(s, "/"+layout.MovedEntry(m.record.ID), m.data, zk.FlagSequence)}
	}
	ops := []any{record, p.creation(s, node, nil, 0)}
	for range m.record.Returns % returnVersions {
		ops = append(ops, p.setting(s, node, nil, -1))
	}
	return append(ops, p.setting(s, node, m.data, -1))
}

// relocate moves an entry to p. do executes the operations that create the entry there together with
// those that end it where it is, and reports at which of the first ones it has failed. Directories
// are created as needed. If the entry's place is taken, it goes to the tail. A record that was left
// alone is deleted in the same transaction: by itself that could hit the one of another client, which
// has just moved the entry.
func (p *place) relocate(ctx context.Context, s *recipe.Session, m move, do func(ops []any) (failed int, err error)) error {
	for sweep := false; ; {
		if m.record.Node == "" || m.tail {
			if err := p.numbered(ctx, s); err != nil {
				return err
			}
		}
		ops := p.ops(s, m)
		if sweep {
			ops = slices.Insert(ops, 0, any(p.deletion(s, returnedPath(m.record.ID), 0)))
		}
		failed, err := do(ops)
		if sweep && failed == 0 && errors.Is(err, zk.ErrNoNode) { // it is gone
			sweep = false
			continue
		} else if sweep {
			failed--
		}
		switch missing := errors.Is(err, zk.ErrNoNode); {
		case err == nil, failed < 0, !missing && !errors.Is(err, zk.ErrNodeExists):
			return err
		case missing && m.due != 0:
			err = p.ensure(ctx, s, bucketOf(m.due))
		case missing:
			err = p.ensure(ctx, s, returnedNode)
		case m.due != 0:
			m.due++
			continue
		case failed == 0: // the record was left alone, or a container has begun its numbers anew
			sweep = true
			continue
		default:
			m.tail = true
			continue
		}
		if err != nil {
			return err
		}
	}
}

// numbered returns an error if the queue has no numbers left for moves.
func (p *place) numbered(ctx context.Context, s *recipe.Session) error {
	stat, err := s.Exists(ctx, p.path)
	if err != nil || stat == nil {
		return err
	}
	if next := layout.NextSequence(stat); next > layout.MaxSequence || next < 0 {
		return fmt.Errorf("%w: of the entries at %s", protocol.ErrSequenceExhausted, p.path)
	}
	return nil
}

// describe returns an origin as people read it.
func describe(r layout.Record) string {
	if r.Origin == nil {
		return ""
	}
	return r.Origin.Queue + "/" + r.Origin.ID + " after " + strconv.Itoa(r.Origin.Attempts) + " attempts: " + r.Reason
}
