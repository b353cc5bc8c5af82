package lock

import (
	"container/list"
	"context"
	"errors"
	"fmt"
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

	// patience is how long TryLock waits behind a contender that may linger.
	patience = 250 * time.Millisecond

	// defaultLingerLimit is how many unused nodes of a client linger, without [WithLingerLimit].
	defaultLingerLimit = 1000
)

// WithLinger is for a lock that one process takes again and again while others rarely want it. After
// [Lease.Unlock] the contender's node stays, and the next caller gets a [Lease] without a request.
// Callers of one Mutex wait for each other inside the process, as with [WithLocalQueue], which this
// option includes.
//
// The lock is given back
//
//   - at once if another contender comes while no lease is held,
//   - if one is held, by its Unlock; while callers of this Mutex wait, by the first Unlock after min(d,
//     100 ms) since the contender came,
//   - when it was not used for d,
//   - after a [Mutex.Revoke], at once or by the Unlock,
//   - when the client is closed.
//
// After that, callers go to the end of the line. So another contender waits for one lease, or for a
// tenth of a second and one lease, and some round trips.
//
// Leases under one node have the same [Lease.Token], [Lease.Check] and [Lease.Node]. They fence
// processes from each other, but not the goroutines of one: what a holder has sent and not awaited
// before its Unlock may arrive during the next lease. Unlock says that the lease has ended, and says
// nothing about the node. [Mutex.Break] ends the present lease. A caller that comes before the event
// of that arrives may get a lease that ends with it.
//
// Nothing is lent while there is no connection. Then Lock waits for the next one, and reads the node.
//
// A process that dies or hangs within d of its last use keeps others waiting for its session timeout,
// though it holds nothing. So d is a second rather than a minute, and a process that ends closes its
// client.
//
// A TryLock of this module that meets such a node enters the line, and waits for a quarter of a second.
// A try of another library (create, list, delete) fails, but after two of them the lock is left
// alone for a second, and the third succeeds unless a lease is held.
//
// The node belongs to one Mutex: share the value, not only its path. A [Simple] cannot linger.
func WithLinger(d time.Duration) Option {
	return func(m *Mutex) error {
		if d <= 0 {
			return fmt.Errorf("linger of %v is not positive", d)
		}
		m.linger = &linger{mutex: m, d: d, turn: make(localQueue, 1)}
		m.request.Kind = line.Lingering
		return nil
	}
}

// WithLingerLimit says how many unused nodes of a client may stay when this Mutex adds one more, by
// [WithLinger]. Those that were not used for longest go. The default is 1,000. Views of a client (see
// [protocol.Client.With]) are counted for themselves.
func WithLingerLimit(n int) Option {
	return func(m *Mutex) error {
		if n < 1 {
			return fmt.Errorf("%d nodes cannot linger", n)
		}
		m.lingerLimit = n
		return nil
	}
}

// A linger passes the node of a Mutex from one caller to the next.
type linger struct {
	mutex *Mutex
	d     time.Duration
	turn  localQueue // has an element while a caller is in line or holds a lease

	receipts atomic.Bool // leases have written with Multi, which leaves nodes beside the lease's

	mu      sync.Mutex // protects what follows, and what it says of a kept
	waiting int        // callers that wait for their turn
	kept    *kept      // nil if the next caller has to go to the line
	visits  visits
}

// A removal deletes a node.
type removal = func(context.Context, *recipe.Session) error

// A kept is a node that outlasts the leases on it.
type kept struct {
	linger  *linger
	session *recipe.Session
	node    string // its path
	token   int64
	remove  removal
	watch   *recipe.Watch   // on the node; belongs to who has the turn, as resumed does
	resumed <-chan struct{} // closed once there is a connection over which the node was not read
	changed atomic.Bool     // the node has, or may not be read
	life    context.Context // until the node is given back or lost
	end     context.CancelFunc
	nodes   *lingerers

	// The mu of the linger protects these.
	used    bool
	timer   *time.Timer // settles when the node was not used for d
	idle    time.Time   // when it was last used
	until   time.Time   // when it has to be given back; zero: as long as it is used
	visitor string      // the contender that came, if it is another library's

	// awaitContender has these: the line was listed, and had so many children that are no contenders.
	listed bool
	strays int

	place *list.Element // among the unused; the mu of nodes protects it
}

// take returns a grant when it is the caller's turn, on the kept node if there is one.
func (l *linger) take(ctx context.Context, s *recipe.Session, r *line.Request, acquire attempt) (g *recipe.Grant, err error) {
	if err := l.await(ctx, s, r.Try); err != nil {
		return nil, err
	}
	defer func() { // also if acquire panics
		if g == nil {
			<-l.turn
		}
	}()

	if k := l.lend(s, r.Try); k != nil {
		if g, err := k.grant(ctx); !errors.Is(err, errNotKept) {
			return g, err
		}
	}
	l.settle() // the node may be another session's, and was kept for this caller
	if err := l.standBack(ctx, s, r.Try); err != nil {
		return nil, err
	}
	k := &kept{linger: l, session: s}
	request := *r
	request.Keep = func(remove removal) removal {
		k.remove = remove
		return k.leave
	}
	g, err = acquire(ctx, s, &request)
	if err == nil {
		l.keep(k, g)
	}
	return g, err
}

// await waits for the caller's turn. Whoever waits is counted until lend is called.
func (l *linger) await(ctx context.Context, s *recipe.Session, try bool) error {
	if try {
		return l.turn.wait(ctx, s, true)
	}
	l.wait(1)
	err := l.turn.wait(ctx, s, false)
	if err != nil {
		l.wait(-1)
		l.settle() // the node may have been kept for this caller
	}
	return err
}

func (l *linger) wait(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting += n
}

// lend returns the kept node, if it is one of s, to the caller whose turn it is.
func (l *linger) lend(s *recipe.Session, try bool) *kept {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !try {
		l.waiting--
	}
	k := l.kept
	if k == nil || k.session.ID() != s.ID() { // one of the sessions has ended
		return nil
	}
	k.used = true
	k.nodes.take(k)
	return k
}

// errNotKept says that a node that was kept may not be used any more.
var errNotKept = errors.New("node not kept")

// grant returns a grant on the node to the caller whose turn it is. It makes a request only if the
// session has to be confirmed, or if there was a reconnect since the node was read.
func (k *kept) grant(ctx context.Context) (g *recipe.Grant, err error) {
	l := k.linger
	defer func() {
		if g == nil {
			l.unused(k)
		}
	}()
	if _, err := k.session.Confirm(ctx); err != nil {
		return nil, err
	}
	same, err := k.same(ctx)
	if err != nil && (ctx.Err() != nil || k.session.Err() != nil) {
		return nil, err
	}
	if err != nil || !same {
		k.changed.Store(true)
	}
	if k.changed.Load() {
		l.limit(k, 0)
		return nil, errNotKept
	} else if l.isOverdue(k) { // it has waited for a connection, perhaps
		return nil, errNotKept
	}
	g, err = l.mutex.recipe.NewGrant(ctx, k.session, k.node, k.token, k.leave)
	if err == nil {
		g.AfterFunc(func() { l.ended(k, g) })
	}
	return g, err
}

// same reports whether the node is as it was created, whether or not awaitChange knows already. After
// a reconnect it asks a server that knows all that had happened by then: the next one may lag.
func (k *kept) same(ctx context.Context) (same bool, err error) {
	stat, err := k.watch.Ready(ctx)
	if err != nil || stat.Version > 0 || isClosed(k.watch.Changed()) {
		return false, err
	} else if k.linger.mutex.client.State() == protocol.Connected && !isClosed(k.resumed) {
		return k.watch.Current(ctx)
	}
	for {
		k.resumed = k.session.Resumption()
		if err := k.session.Sync(ctx, k.node); err != nil {
			return false, err
		}
		if same, err := k.watch.Recheck(ctx); err != nil || !same || !isClosed(k.resumed) {
			return same, err
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// keep notes that the node of g, which was just granted, is kept.
func (l *linger) keep(k *kept, g *recipe.Grant) {
	k.life, k.end = context.WithCancel(context.Background())
	k.node, k.token = l.mutex.recipe.Path()+"/"+g.Node(), g.Token()
	k.resumed = k.session.Resumption()
	k.watch = k.session.Watch(k.node)
	k.nodes = recipe.Shared(k.session, lingerersKey{}, newLingerers)
	l.mu.Lock()
	if l.kept != nil { // its session has ended
		l.drop(l.kept)
	}
	k.used, l.kept = true, k
	k.timer = time.AfterFunc(l.d, l.settle)
	if l.visits.rest() > 0 {
		k.until = time.Now()
	}
	l.mu.Unlock()
	k.nodes.add(k)
	g.AfterFunc(func() { l.ended(k, g) })
	k.session.Go(func(ctx context.Context, s *recipe.Session) {
		k.awaitContender(ctx, s)
		k.awaitChange(ctx, s)
	})
}

// awaitContender calls itself whenever the line has changed, until another contender is in it, and
// says for how long the node may be kept then. A line that may not be listed may have contenders.
func (k *kept) awaitContender(ctx context.Context, s *recipe.Session) {
	l := k.linger
	for k.life.Err() == nil {
		w := s.WatchChildren(l.mutex.recipe.Path())
		same, err := w.Current(ctx)
		if err != nil {
			l.limit(k, 0)
			return
		} else if !same {
			continue
		}
		inLine := l.mutex.line.Among(w.Children())
		for _, n := range inLine {
			if l.mutex.recipe.Path()+"/"+n.Node == k.node {
				continue
			}
			if n.Owner == (recipe.Owner{}) {
				l.mu.Lock()
				k.visitor = n.Node
				l.mu.Unlock()
			}
			l.limit(k, min(l.d, overtaking))
			return
		}

		strays := len(w.Children()) - len(inLine)
		if k.listed && strays == k.strays && !l.receipts.Load() {
			l.visited(true) // or what has changed?
		}
		k.listed, k.strays = true, strays
		w.AfterChange(k.life, func() { k.session.Go(k.awaitContender) })
		return
	}
}

// awaitChange has the node given back when it has changed or gone: it was revoked, or broken.
func (k *kept) awaitChange(ctx context.Context, s *recipe.Session) {
	w := s.Watch(k.node)
	changed := func() {
		k.changed.Store(true)
		k.session.Go(func(context.Context, *recipe.Session) { k.linger.limit(k, 0) })
	}
	if stat, err := w.Ready(ctx); err != nil || stat.Version > 0 {
		changed()
		return
	}
	w.AfterChange(k.life, changed)
}

// look asks the server again whether the line or the node has changed. If an event is missing, that
// makes up for it.
func (k *kept) look(ctx context.Context, s *recipe.Session) {
	if k.changed.Load() || k.life.Err() != nil {
		return
	}
	for _, w := range []*recipe.Watch{s.WatchChildren(k.linger.mutex.recipe.Path()), s.Watch(k.node)} {
		if _, err := w.Ready(ctx); err == nil {
			w.Recheck(ctx)
		}
	}
}

// limit says that the node may be kept no longer than for d from now.
func (l *linger) limit(k *kept, d time.Duration) {
	l.mu.Lock()
	if until := time.Now().Add(d); k.until.IsZero() || until.Before(k.until) {
		k.until = until
	}
	l.mu.Unlock()
	l.settle()
}

// leave ends the turn of a lease that was given back, and deletes the node if it is not to be kept.
func (k *kept) leave(ctx context.Context, s *recipe.Session) error {
	l := k.linger
	l.mu.Lock()
	k.used, k.idle = false, time.Now()
	due := l.due(k)
	if due {
		l.drop(k)
	} else {
		l.rest(k)
	}
	l.mu.Unlock()
	<-l.turn
	if due {
		return l.remove(ctx, k, s)
	}
	for {
		old := k.nodes.excess(l.mutex.lingerLimit)
		if old == nil {
			return nil
		}
		old.linger.limit(old, 0)
	}
}

// ended ends the turn of a lease that was lost.
func (l *linger) ended(k *kept, g *recipe.Grant) {
	if !errors.Is(g.Err(), protocol.ErrLost) {
		return
	}
	l.mu.Lock()
	l.drop(k)
	l.mu.Unlock()
	<-l.turn
}

// unused notes that a lease on the node has not come about.
func (l *linger) unused(k *kept) {
	l.mu.Lock()
	k.used = false
	l.rest(k)
	l.mu.Unlock()
	l.settle()
}

// rest goes on with the time for which the node may stay unused. The caller holds mu.
func (l *linger) rest(k *kept) {
	k.nodes.rest(k)
	k.timer.Reset(max(l.d-time.Since(k.idle), time.Millisecond))
}

// settle deletes the node in the background if it is not used and has to be given back.
func (l *linger) settle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kept
	if k == nil || k.used || !l.due(k) {
		return
	}
	l.drop(k)
	k.session.Go(func(ctx context.Context, s *recipe.Session) {
		if err := l.remove(ctx, k, s); err != nil {
			l.mutex.recipe.Logger().Debug("unused lock not given back", "node", k.node, "error", err)
		}
	})
}

// due reports whether a node that is not used has to be given back. The caller holds mu.
func (l *linger) due(k *kept) bool {
	if k.until.IsZero() {
		return time.Since(k.idle) >= l.d
	}
	return l.waiting == 0 || !time.Now().Before(k.until)
}

func (l *linger) isOverdue(k *kept) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !k.until.IsZero() && !time.Now().Before(k.until)
}

// drop makes the next caller go to the line. The caller holds mu.
func (l *linger) drop(k *kept) {
	k.end()
	k.nodes.remove(k)
	k.timer.Stop()
	if l.kept == k {
		l.kept = nil
	}
}

// remove deletes the node. If it goes for a contender of another library, remove finds out what has
// become of that.
func (l *linger) remove(ctx context.Context, k *kept, s *recipe.Session) error {
	l.mu.Lock()
	visitor := k.visitor
	l.mu.Unlock()
	err := k.remove(ctx, s)
	if visitor != "" && err == nil {
		k.session.Go(func(ctx context.Context, s *recipe.Session) { l.noteVisit(ctx, s, visitor) })
	}
	return err
}
