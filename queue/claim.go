package queue

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/batch"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A claim is an entry that a consumer has reserved. One transaction deleted the entry from the
// queue and created it again in the consumer's directory (below held), under a name that is never
// used again. So the queue's children are exactly the entries that nobody has, and an operation on
// a claim can't hit another claim. If the consumer's receipt goes, any other consumer puts the
// entry back.
//
// A taker needs no reservation. Its claim is the entry at its place in the queue, for a single
// attempt to remove it.
type claim struct {
	reading // the czxid of a reserved entry's Stat is the fencing token
	dir     *directory
	ended   atomic.Bool // and is no longer counted
}

// before returns the record as it was before the claim.
func (c *claim) before() layout.Record {
	r := c.record
	r.Attempts--
	return r
}

// A directory contains the claims of a consumer. The receipt of transactions that end claims has
// the same name, and says that the consumer lives. (The directory can't be the receipt, because
// servers delete an empty container, perhaps before the receipt is read.)
//
// The zero directory has no node and no receipt. Takers use it if a quota leaves no room for them.
type directory struct {
	name     string
	node     string       // its path below the queue's path
	made     bool         // the node exists, or has existed
	receipt  *receipt     // only the settler's transactions change it
	receives atomic.Bool  // there is a receipt, and nobody has deleted it
	claims   atomic.Int64 // that have not ended
}

// unique returns the part of the claim's name that no other claim has.
func (c *claim) unique() string {
	number, _, _ := strings.Cut(path.Base(c.node()), ",")
	return path.Base(path.Dir(c.node())) + "-" + number
}

// A settlement is a request to delete claims and do more operations. The first operations delete
// the claims.
type settlement struct {
	batch.Request
	session *recipe.Session // of an item's call, which goes on in the background; nil for takers
	claims  []*claim
	ops     []any
}

// A settler ends claims of one session. Settlements that arrive during a transaction go with the
// next transaction.
type settler struct {
	*site
	settlements *batch.Batcher[*settlement]

	mu    sync.Mutex      // protects taken
	taken map[string]bool // nodes of entries that takers are about to remove
}

func newSettler(p *site) *settler {
	s := &settler{site: p, taken: make(map[string]bool)}
	s.settlements = batch.New(p, p.limits(), s.serve, func(_ *settlement, cause error) error { return uncertain(cause) })
	return s
}

// A refusal is the server's error for one operation of a settlement. Nothing of the settlement was
// executed.
type refusal struct {
	operation int
	error
}

func (r *refusal) Unwrap() error { return r.error }

// refusedAt returns the index of the operation that the server refused, or -1.
func refusedAt(err error) int {
	if r := (*refusal)(nil); errors.As(err, &r) {
		return r.operation
	}
	return -1
}

// errGone is the end of a claim that another client has deleted or put back.
var errGone = fmt.Errorf("%w: the reservation has ended", zk.ErrNoNode)

// errLate makes a taker try other entries.
var errLate = fmt.Errorf("%w: others are taking these entries", zk.ErrNoNode)

// errTaken is why a removal without a receipt is uncertain.
var errTaken = errors.New("the entry is gone, and another client can have moved it")

// settle blocks until claims have ended and more was done (all of it or nothing). [refusedAt] says
// which operation failed.
func (s *settler) settle(ctx context.Context, work *recipe.Session, claims []*claim, more ...any) error {
	ops := make([]any, 0, len(claims)+len(more))
	for _, c := range claims {
		ops = append(ops, s.removal(s.session, &c.reading)...)
	}

	err := s.settlements.Do(ctx, &settlement{session: work, claims: claims, ops: append(ops, more...)})
	if claims[0].owner != "" && refusedAt(err) == 0 && errors.Is(err, zk.ErrNoNode) {
		err = errGone
	}
	return s.ended(err, claims...)
}

// ended notes that claims have ended if err says so.
func (s *settler) ended(err error, claims ...*claim) error {
	if err != nil && err != errGone {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range claims {
		if c.owner == "" {
			delete(s.taken, c.Node)
		}
		if !c.ended.Swap(true) {
			c.dir.claims.Add(-1)
		}
	}
	return err
}

// serve sends one transaction after the other while there are settlements. If the view's back-off
// stops, the waiting callers return and the work goes on.
func (s *settler) serve(life context.Context) {
	for pending := range s.settlements.Rounds(nil) {
		over := make(chan struct{})
		_, err := recipe.Detach(life, s.session, func(life context.Context, work *recipe.Session) (struct{}, error) {
			defer close(over)
			s.round(life, work, pending[0].claims[0].dir)
			return struct{}{}, nil
		}, nil)
		if err == protocol.ErrClosed {
			// Nothing was begun, and Rounds ends.
			continue
		}

		if err != nil && life.Err() == nil {
			for _, r := range s.settlements.Pending() {
				if r.session != nil {
					r.session.LetGo(err)
				} else {
					s.settlements.Answer(uncertain(err), r)
				}
			}
		}

		<-over
	}
}

// round sends as many settlements of a directory as fit into one transaction. Settlements that were
// not executed stay pending.
func (s *settler) round(life context.Context, work *recipe.Session, dir *directory) {
	var sent []*settlement
	operations := 0
	collect := func() (ops []any) {
		sent = s.settlements.Collect(func(r *settlement, room *batch.Room) bool {
			if r.claims[0].dir != dir {
				return room.Skip()
			}
			if !room.Take(len(r.ops), recipe.MultiSize(r.ops...)) {
				return false
			}
			ops = append(ops, r.ops...)
			return true
		})

		operations = len(ops)
		return ops
	}

	undone := func() { s.settlements.Return(sent) }
	var done result
	var err error
	receipt := dir.receives.Load()
	if receipt {
		done, err = dir.receipt.transact(life, work, collect, undone)
	}

	// A full quota allows deletions alone, so there can be no receipt. If the answer is lost and
	// all claims are gone, they may have gone in another way.
	if !receipt || errors.Is(err, protocol.ErrQuotaExceeded) && done.failed(err) == operations {
		done, err = transact(life, work, collect, undone, func(ctx context.Context) (bool, error) {
			for _, r := range sent {
				if gone, err := s.isGone(ctx, work, &r.claims[0].reading); err != nil || !gone {
					return false, err
				}
			}
			return true, errTaken
		})
	}

	failed := done.failed(err)
	switch {
	case err == nil, errors.Is(err, protocol.ErrUncertain):
		s.settlements.Answer(err, sent...)
	// An operator has deleted the receipt, so nothing is reserved in its directory any more. The
	// claims that are left end without one.
	case errors.Is(err, errNoReceipt):
		dir.receives.Store(false)
		undone()
	// The settlements stay pending, or Rounds answers them with the session's error.
	case errors.Is(err, errNothingToDo), s.session.Err() != nil:
	case failed < 0, failed >= operations:
		s.settlements.Answer(err, sent...)
	default:
		// A single settlement was refused. The others are sent again.
		i, operation := blame(sent, func(r *settlement) int { return len(r.ops) }, failed)
		s.settlements.Answer(&refusal{operation, err}, sent[i])
		// If a taker was too late, the others probably are, too.
		if sent[i].claims[0].owner == "" {
			s.settlements.Answer(errLate, slices.DeleteFunc(sent, func(r *settlement) bool { return r.claims[0].owner != "" })...)
		}
	}
}

// putBack moves the entry of a claim to another place.
func (s *settler) putBack(ctx context.Context, work *recipe.Session, c *claim, to *place, m move) error {
	err := to.relocate(ctx, work, &s.place, &c.reading, m)
	if to == &s.place && !m.tail && m.due == 0 {
		s.returned.Store(true)
	}
	s.unswept.Store(true)
	if errors.Is(err, zk.ErrNoNode) {
		err = errGone
	}
	return s.ended(err, c)
}

// letGo blocks until the claims that no caller got are back, so that the next round sees their
// entries. If one can't go back now, it tries on in the background.
func (s *settler) letGo(life context.Context, work *recipe.Session, claims ...*claim) {
	var wait sync.WaitGroup
	for _, c := range claims {
		if c.owner == "" {
			// It may still be there, before entries that are read ahead.
			s.ended(nil, c)
			s.returned.Store(true)
			continue
		}

		wait.Go(func() {
			if err := s.putBack(life, work, c, &s.place, move{record: c.before()}); err != nil && err != errGone {
				s.session.Go(func(life context.Context, work *recipe.Session) { s.giveUp(life, work, c, c.before()) })
			}
		})
	}
	wait.Wait()
}

const firstPause = 10 * time.Millisecond

// giveUp puts the entry of a claim back to its place. It tries until that succeeds, the claim is
// gone or the session ends.
func (s *settler) giveUp(life context.Context, work *recipe.Session, c *claim, record layout.Record) {
	for pause := firstPause; life.Err() == nil; pause = min(2*pause, time.Minute) {
		err := s.putBack(life, work, c, &s.place, move{record: record})
		if err == nil || err == errGone || s.session.Err() != nil {
			return
		}

		work.LetGo(err)
		if pause == firstPause {
			s.recipe.Logger().Warn("queue entry not put back yet", "path", s.path, "id", c.record.ID, "error", err)
		}

		wait(life, pause)
	}
}

// fitting returns how many of the first entries fit into a transaction that begins with ops, and
// its operations. The other entries are for the next callers. (An entry that is too large to be
// reserved stands alone.)
func (c *consumer) fitting(entries []*reading, ops []any, operations func(i int) []any) (n int, all []any) {
	size, most := recipe.MultiSize(ops...), min(claimBytes, c.session.RequestLimit())
	for ; n < len(entries); n++ {
		more := operations(n)
		size += max(recipe.MultiSize(more...), len(entries[n].data))
		if n > 0 && (size > most || c.fits(entries[n].data) != nil) {
			break
		}
		ops = append(ops, more...)
	}
	c.keep(entries[n:])
	return n, ops
}

// refusedEntry returns the entry that the operation with this index is about, if each entry has its
// removal and then so many operations more.
func (c *consumer) refusedEntry(entries []*reading, more, failed int) *reading {
	i, _ := blame(entries, func(r *reading) int { return len(c.removal(c.session, r)) + more }, failed)
	return entries[i]
}

// assign claims entries for takers. They stay at their places until the taker's transaction.
func (c *consumer) assign(life context.Context, entries []*reading) (claims []*claim, err error) {
	// Deletions also work without a receipt.
	if c.absent != nil && !errors.Is(c.absent, protocol.ErrQuotaExceeded) {
		return nil, c.absent
	}

	receipt := c.setting(c.session, consumersNode+"/"+c.held.name, make([]byte, 20))
	n, _ := c.fitting(entries, []any{receipt}, func(i int) []any { return c.removal(c.session, entries[i]) })
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range entries[:n] {
		claims = append(claims, &claim{reading: *r, dir: c.held})
		c.taken[r.Node] = true
	}
	c.held.claims.Add(int64(n))
	c.window.latest = claims[n-1].Sequence
	return claims, nil
}

// reserve reserves as many of the first entries as fit into a transaction, all or none. If the
// answer is lost, it looks whether the first claim exists. If others took an entry first, reserve
// returns nothing, and other entries can be tried.
func (c *consumer) reserve(life context.Context, entries []*reading) ([]*claim, error) {
	if c.absent != nil {
		return nil, c.absent
	}

	held := c.held
	if !held.made {
		if err := c.ensure(life, c.session, held.node); err != nil {
			return nil, err
		}
		held.made = true
	}

	if err := c.fits(entries[0].data); err != nil {
		return nil, fmt.Errorf("entry %s can only be taken: %w", entries[0].Node, err)
	}

	claims := make([]*claim, len(entries))
	n, ops := c.fitting(entries, []any{
		// If the receipt is gone, this fails.
		&zk.CheckVersionRequest{Path: c.session.Path(c.path + held.receipt.node), Version: -1},
		// The Stat has the token.
		c.setting(c.session, held.node, nil),
	}, func(i int) []any {
		c.number++
		// The number makes the claim's name unique.
		cl := &claim{reading: *entries[i], dir: held}
		cl.stat, cl.recorded = &zk.Stat{}, true
		cl.owner, cl.elsewhere = held.name, held.node+"/"+layout.HeldEntry(c.number, cl.ID)
		cl.record.Attempts++
		claims[i] = cl
		return append(c.removal(c.session, entries[i]), c.creation(c.session, cl.node(), cl.record.Append(cl.data), 0))
	})

	claims = claims[:n]
	var token int64
	lost := false // an answer
	done, err := transact(life, c.session, func() []any { return ops }, func() {}, func(ctx context.Context) (bool, error) {
		lost = true
		stat, _ := c.session.Exists(ctx, c.path+claims[0].node())
		if stat != nil {
			token = stat.Czxid
		}
		// If the claim can't be seen, the next attempt meets it, and it goes back.
		return stat != nil, nil
	})
	if err == nil {
		if done != nil {
			token = done[1].Stat.Mzxid
		}
		for _, cl := range claims {
			cl.stat.Czxid = token
		}

		held.claims.Add(int64(n))
		c.window.latest = claims[n-1].Sequence
		return claims, nil
	}

	if c.session.Err() == nil && (lost || errors.Is(err, protocol.ErrUncertain)) {
		// Claims that exist go back, also if an operator has ended the first of them meanwhile. The
		// others don't matter.
		held.claims.Add(int64(n))
		c.letGo(life, c.session, claims...)
	}

	failed := done.failed(err)
	missing := errors.Is(err, zk.ErrNoNode)
	switch {
	case c.session.Err() != nil, failed < 0, failed < 2 && !missing:
		return nil, err
	// The receipt was deleted. Other consumers put back its claims.
	case missing && failed == 0:
		held.receives.Store(false)
		c.relist()
	// The directory was empty, and the server has deleted it.
	case missing && failed == 1:
		held.made = false
		c.relist()
	// It may have been the attempt whose answer was lost. Its claims go back to their places.
	case lost && (missing || errors.Is(err, zk.ErrBadVersion)):
		c.relist()
	// Another consumer was faster.
	case missing, errors.Is(err, zk.ErrBadVersion):
		c.report(protocol.EventCollided, 1, err)
		c.lost()
	// Entries of other libraries can have children, and can't be deleted then.
	case errors.Is(err, zk.ErrNotEmpty):
		c.setAside(c.refusedEntry(entries, 1, failed-2).Node, err)
		c.relist()
	default:
		return nil, err
	}

	return nil, nil
}

// appear makes sure that there is a receipt.
func (c *consumer) appear(life context.Context) error {
	if c.held.receives.Load() {
		return nil
	}

	r, err := c.newReceipt(life, consumersNode)
	if err == nil {
		name := path.Base(r.node)
		c.held = &directory{name: name, node: heldNode + "/" + name, receipt: r}
		c.held.receives.Store(true)
	}
	return err
}

// disappear deletes the directory and the receipt. If that is refused, they are used again.
func (c *consumer) disappear(life context.Context) error {
	if c.held.made {
		if err := c.deleteNode(life, c.session, c.held.node); err != nil {
			return err
		}
	}

	err := c.deleteNode(life, c.session, c.held.receipt.node)
	if err == nil {
		c.held = new(directory)
	}
	return err
}
