package lock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

const (
	// overtaking is for how long callers may be granted a lock after another contender came for it.
	overtaking = 100 * time.Millisecond

	// defaultLingerLimit is how many nodes of a client linger, without [WithLingerLimit].
	defaultLingerLimit = 1000

	// visitsApart is how far apart two visits may be: see [linger.visited].
	visitsApart = 3 * time.Second

	// standsBack is for how long callers leave a lock alone after another library's visits.
	standsBack = 1200 * time.Millisecond
)

// A linger makes callers of one Mutex wait for each other, and lends the node of one caller to the
// next.
type linger struct {
	recipe *recipe.Recipe
	line   *line.Line
	client *protocol.Client
	queue  localQueue    // nil if callers don't wait for each other
	d      time.Duration // zero: no node is kept
	most   int           // nodes of the client

	lease    atomic.Pointer[recipe.Grant] // of the caller that has the ticket
	receipts atomic.Int32                 // grows with each Multi of a lease, which can leave a node beside the lease's
	waiting  atomic.Int32                 // callers that wait for the ticket

	mu      sync.Mutex // protects the fields below, and some of a kept
	kept    *kept      // nil if the next caller must go to the line
	visit   time.Time  // the last visit, unless it was the second in a row
	standby time.Time  // until then the lock is left alone
}

// An attempt tries to get the lock under one session.
type attempt func(context.Context, *recipe.Session, *line.Request) (*recipe.Grant, error)

// take waits for the ticket and returns a grant, on the kept node if there is one.
func (l *linger) take(ctx context.Context, s *recipe.Session, r *line.Request, acquire attempt) (g *recipe.Grant, err error) {
	if l.queue == nil {
		return acquire(ctx, s, r)
	}
	if err := l.await(ctx, s, r.Try); err != nil {
		return nil, err
	}
	defer func() {
		if g == nil { // also if acquire panics
			l.queue <- struct{}{}
			l.settle() // the node may have been kept for this caller
		}
	}()

	// A lease on the kept node costs no request. Without such a node the caller goes to the line.
	g, err = l.lend(ctx, s)
	if g == nil && err == nil {
		g, err = l.join(ctx, s, r, acquire)
	}

	if err == nil {
		l.lease.Store(g)
		g.AfterFunc(func() { l.lost(g) })
	}
	return g, err
}

// await waits for the ticket. A try doesn't wait.
func (l *linger) await(ctx context.Context, s *recipe.Session, try bool) error {
	// The goroutine of the lost lease's AfterFunc may come too late for a try.
	l.lost(l.lease.Load())

	select {
	case <-l.queue:
		return nil
	default:
		if try {
			return line.ErrBusy
		}
	}

	notice := time.AfterFunc(line.Notice, func() {
		l.recipe.Logger().Info("waits for a contender of this client",
			"path", l.recipe.Path(), "for", line.Notice, "held by this client", true)
	})
	defer notice.Stop()

	l.waiting.Add(1)
	err := await(ctx, s, l.queue)
	l.waiting.Add(-1)

	if err != nil {
		l.settle() // the node may have been kept for this caller
	}
	return err
}

// lost puts the ticket of a lost lease back, once.
func (l *linger) lost(g *recipe.Grant) {
	if g == nil || !errors.Is(g.Err(), protocol.ErrLost) {
		return
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease.Load() == g {
		l.drop(l.kept)

		// The ticket comes first, or a try could find neither the lease nor the ticket.
		l.queue <- struct{}{}
		l.lease.CompareAndSwap(g, nil)
	}
}

// lend returns a grant on the kept node to the caller that has the ticket, or nil if the caller
// must go to the line. It makes a request only if the session must be confirmed.
func (l *linger) lend(ctx context.Context, s *recipe.Session) (g *recipe.Grant, err error) {
	l.mu.Lock()
	k := l.kept
	if k == nil || k.session.ID() != s.ID() { // one of the sessions has ended
		l.mu.Unlock()
		return nil, nil
	}
	k.used = true
	l.mu.Unlock()

	defer func() {
		if g == nil {
			l.mu.Lock()
			k.used = false
			l.mu.Unlock()
		}
	}()

	k.nodes.use(k)
	if _, err := s.Confirm(ctx); err != nil {
		return nil, err
	}
	if !k.fresh(ctx) {
		l.limit(k, 0)
	}

	// Another contender may have come while the session was confirmed.
	l.mu.Lock()
	over := l.over(k)
	l.mu.Unlock()
	if over {
		return nil, nil
	}
	g, err = l.recipe.NewGrant(ctx, s, k.node, k.token, k.leave)
	if err == nil && !k.watch.Unchanged() { // the session had to be confirmed again, maybe across a cut
		g.Verify(ctx)
	}
	return g, err
}

// join gets a node in line, and keeps it unless d is zero.
func (l *linger) join(ctx context.Context, s *recipe.Session, r *line.Request, acquire attempt) (*recipe.Grant, error) {
	l.settle() // or it would wait for its own client's node
	if err := l.standBack(ctx, s, r.Try); err != nil {
		return nil, err
	}

	k := &kept{linger: l, session: s, used: true}
	request := *r
	request.Keep = func(remove removal) removal {
		k.remove = remove
		return k.leave
	}
	g, err := acquire(ctx, s, &request)
	if err != nil || l.d == 0 {
		return g, err
	}

	// From here on the node outlasts its leases.
	k.life, k.end = context.WithCancel(context.Background())
	k.node, k.token = l.recipe.Path()+"/"+g.Node(), g.Token()
	k.watch = s.Watch(k.node)
	k.nodes = recipe.Shared(s, lingerersKey{}, func() *lingerers { return new(lingerers) })
	excess := k.nodes.add(k, l.most)

	l.mu.Lock()
	l.kept = k // if there was one, its session has ended
	k.timer = time.AfterFunc(l.d, l.settle)
	l.mu.Unlock()

	for _, old := range excess {
		old.linger.limit(old, 0)
	}

	// Two goroutines, because it can take long to list the line, and a broken node must not be
	// lent.
	s.Go(k.awaitContender)
	s.Go(k.awaitChange)
	return g, nil
}

// limit sets the time for which the node may still be kept, unless it is shorter already.
func (l *linger) limit(k *kept, d time.Duration) {
	l.mu.Lock()
	if until := time.Now().Add(d); k.until.IsZero() || until.Before(k.until) {
		k.until = until
	}
	l.mu.Unlock()
	l.settle()
}

// settle deletes the node in the background if it is not used and must be given back.
func (l *linger) settle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.kept; k != nil && !k.used && l.due(k) {
		l.drop(k)
		k.session.Go(func(ctx context.Context, s *recipe.Session) { k.delete(ctx, s) })
	}
}

// due reports whether a node that is not used must be given back. The caller holds mu.
func (l *linger) due(k *kept) bool {
	if l.over(k) {
		return true
	} else if k.until.IsZero() {
		return time.Since(k.idle) >= l.d
	}
	return l.waiting.Load() == 0
}

// over reports whether the node must not be lent any more. The caller holds mu.
func (l *linger) over(k *kept) bool {
	return !k.until.IsZero() && !time.Now().Before(k.until) || time.Now().Before(l.standby)
}

// drop makes the next caller go to the line, if k is the kept node. The caller holds mu.
func (l *linger) drop(k *kept) {
	if k != nil && k == l.kept {
		k.end()
		k.nodes.remove(k)
		k.timer.Stop()
		l.kept = nil
	}
}

// visited notes that a contender of another library has come and gone without the lock: it has
// tried to get it. Two such visits in a row earn the third one a free lock.
func (l *linger) visited() {
	l.mu.Lock()
	// The row ends with its second visit, so the lock is left alone once, and not for good.
	if now := time.Now(); now.Sub(l.visit) > visitsApart {
		l.visit = now
	} else {
		l.visit, l.standby = time.Time{}, now.Add(standsBack)
	}
	l.mu.Unlock()
	l.settle()
}

// standBack waits while the lock is left alone.
func (l *linger) standBack(ctx context.Context, s *recipe.Session, try bool) error {
	l.mu.Lock()
	rest := time.Until(l.standby)
	l.mu.Unlock()

	if rest <= 0 {
		return nil
	} else if try {
		return line.ErrBusy
	}
	return await(ctx, s, time.After(rest))
}
