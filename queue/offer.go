package queue

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

const maxOps = 1000 // of one transaction, unless one call alone has more

// A producer creates entries under one session: whatever has gathered while a transaction was under way goes with
// the next one. One at a time keeps the order of each caller's entries.
type producer struct {
	*agent
	*desk

	// Of the directory, as of the last look or the last offer.
	next     int64 // the number of the next entry, or more by now; negative if nobody has looked
	lookedAt time.Time
	length   int   // children, or fewer by now
	version  int32 // at which there were so many
	data     []byte
}

// lookAgainAfter bounds how long the number of the last offer is trusted to say where the others are.
const lookAgainAfter = time.Minute

func newProducer(a *agent) *producer {
	p := &producer{agent: a, next: -1}
	p.desk = newDesk(a.session, p.serve)
	return p
}

func (p *producer) serve(life context.Context) {
	for {
		calls := p.open()
		if len(calls) == 0 {
			return
		}
		if err := p.admit(life, calls[0]); err != nil {
			p.fail(err, calls[0])
		} else {
			p.send(life)
		}
	}
}

// fail ends calls with an error, and all of them if it is the session that has ended.
func (p *producer) fail(err error, calls ...*call) {
	if over := p.session.Err(); over != nil && !errors.Is(err, protocol.ErrUncertain) {
		p.finish(over, p.open()...)
		return
	}
	p.finish(err, calls...)
}

// admit tells whether there is room for the first call, and numbers.
func (p *producer) admit(life context.Context, first *call) error {
	full := func() bool { return p.queue.maxLength > 0 && p.length+len(first.items) > p.queue.maxLength }
	exhausted := func() bool { return p.next+int64(len(first.items)) > lastSequence }
	if p.next < 0 || time.Since(p.lookedAt) >= lookAgainAfter || exhausted() || full() {
		if err := p.look(life); err != nil {
			return err
		}
	}
	if exhausted() {
		return fmt.Errorf("%w: number %d, and %d is the end; drain the queue and delete its node while nobody uses it, or go to another path",
			protocol.ErrSequenceExhausted, p.next, int64(lastSequence))
	}
	if full() {
		return fmt.Errorf("%w: %d entries, at most %d", ErrFull, p.length, p.queue.maxLength)
	}
	return nil
}

// look learns how long the queue is, and which number comes next: the Stat counts creations and deletions together.
func (p *producer) look(life context.Context) error {
	if err := p.session.Sync(life, p.queue.path); err != nil {
		return err
	}
	stat, err := protocol.Do(life, p.session, func(c *zk.Conn) (stat *zk.Stat, err error) {
		p.data, stat, err = c.Get(p.dir)
		return stat, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		if err = p.queue.create(life, p.session); err == nil {
			return p.look(life)
		}
	}
	if err != nil {
		return err
	}
	p.next, p.lookedAt = int64(uint32(stat.Cversion+stat.NumChildren)>>1), time.Now()
	p.length, p.version = int(stat.NumChildren), stat.Version
	return nil
}

// create makes the queue's node. Its parents may be containers, but it is not: the server would remove that
// whenever it is empty, and a request for an entry that was read before would hit the entry of the same name and
// version in the next one.
func (q *Queue) create(life context.Context, s *protocol.Session) error {
	for {
		_, err := protocol.Do(life, s, func(c *zk.Conn) (string, error) {
			return protocol.Create(c, s.Path(q.path), nil, zk.FlagPersistent, q.recipe.ACL())
		})
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			return nil
		case !errors.Is(err, zk.ErrNoNode):
			return err
		}
		if _, err := s.EnsurePath(life, path.Dir(q.path)); err != nil {
			return err
		}
	}
}

// send offers what has gathered, as much of it as one transaction takes.
func (p *producer) send(life context.Context) {
	var batch []*call
	done, err := p.receipts.transact(life, forOffers, transaction{
		prepare: func() (ops []any) {
			batch, ops = p.load()
			return ops
		},
		unsent: func(unknown bool) { p.unsend(batch, unknown) },
	})
	switch {
	case err == nil:
		p.offered(life, batch, done)
	case errors.Is(err, errNothingToDo):
	case errors.Is(err, protocol.ErrUncertain):
		p.next = -1
		for _, c := range batch {
			p.finish(&UncertainError{Data: c.items, Err: err}, c)
		}
	case errors.Is(err, protocol.ErrTooLarge) && len(batch) > 1:
		p.unsend(batch, true) // each of them may do alone
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
		p.next = -1 // look again, which makes the directory if it has to
	case batch == nil:
		p.fail(err, p.open()...)
	default:
		p.fail(err, batch...)
	}
}

// load makes a transaction of the calls that fit into it.
func (p *producer) load() (batch []*call, ops []any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
	size := 0
	if p.queue.maxLength > 0 {
		size = len(p.data) // which is written again
	}
	for _, c := range p.calls {
		more := p.queue.creations(p.dir, c.items)
		size += protocol.MultiSize(more...)
		n := len(ops) + len(more)
		if len(batch) > 0 && (size > p.space.size() || n > maxOps || p.next+int64(n) > lastSequence) {
			break
		}
		if p.queue.maxLength > 0 && p.length+n > p.queue.maxLength {
			break
		}
		c.sent = true
		batch, ops = append(batch, c), append(ops, more...)
	}
	if p.queue.maxLength > 0 && ops != nil {
		ops = append(ops, &zk.SetDataRequest{Path: p.dir, Data: p.data, Version: p.version})
	}
	return batch, ops
}

// offered tells the callers which entries are theirs.
func (p *producer) offered(life context.Context, batch []*call, done result) {
	n := 0
	for _, c := range batch {
		n += len(c.items)
	}
	var ids []string
	if done.answers == nil {
		p.next = -1
		ids = p.recover(life, done.zxid, n)
	} else {
		for _, a := range done.answers[:n] {
			ids = append(ids, path.Base(a.String))
		}
		last, _ := parse(ids[n-1])
		p.next = int64(last) + 1
		p.lookedAt = time.Now()
		if p.queue.maxLength > 0 {
			stat := done.answers[n].Stat
			p.length, p.version = int(stat.NumChildren), stat.Version
		}
	}
	for _, c := range batch {
		if ids != nil {
			c.ids, ids = ids[:len(c.items)], ids[len(c.items):]
		}
	}
	p.finish(nil, batch...)
}

// lookBack is how many entries younger than those in question recover passes over.
const lookBack = 64

// recover finds the n entries that a transaction has created whose answer was lost. If any of them was consumed already
// there is no telling which, and it returns nil.
func (p *producer) recover(life context.Context, zxid int64, n int) (ids []string) {
	children, err := protocol.Do(life, p.session, func(c *zk.Conn) ([]string, error) {
		children, _, err := c.Children(p.dir)
		return children, err
	})
	if err != nil {
		return nil
	}
	entries := parseAll(children)
	for i := len(entries) - 1; i >= 0 && len(entries)-i <= n+lookBack; i-- {
		created, err := protocol.Do(life, p.session, func(c *zk.Conn) (int64, error) {
			there, stat, err := c.Exists(p.dir + "/" + entries[i].name)
			if err != nil || !there {
				return 0, err
			}
			return stat.Czxid, nil
		})
		if err != nil {
			return nil
		}
		if created == zxid {
			ids = append(ids, entries[i].name)
		} else if created > 0 && created < zxid {
			break
		}
	}
	if len(ids) != n {
		return nil
	}
	slices.Reverse(ids)
	return ids
}
