package lock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

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

	// visitsApart is how far apart two visits may be: see [linger.visited].
	visitsApart = 3 * time.Second

	// standsBack is for how long callers leave a lock alone that another library has tried in vain.
	standsBack = 1200 * time.Millisecond
)

// A linger has callers of one Mutex wait for each other, and passes the node of one to the next.
type linger struct {
	recipe *recipe.Recipe
	line   *line.Line
	client *protocol.Client
	turn   localQueue    // nil if callers don't wait for each other
	d      time.Duration // zero: no node is kept
	most   int           // unused nodes of the client

	receipts atomic.Bool  // leases have written with Multi, which leaves nodes beside the lease's
	waiting  atomic.Int32 // callers that have not asked for the kept node yet

	mu      sync.Mutex // protects what follows, and what it says of a kept
	kept    *kept      // nil if the next caller has to go to the line
	visits  int        // in a row
	visit   time.Time  // the last one
	standby time.Time  // until then the lock is left alone
}

// An attempt tries to get the lock under one session.
type attempt func(context.Context, *recipe.Session, *line.Request) (*recipe.Grant, error)

// take returns a grant when it is the caller's turn, on the kept node if there is one.
func (l *linger) take(ctx context.Context, s *recipe.Session, r *line.Request, acquire attempt) (g *recipe.Grant, err error) {
	if l.turn == nil {
		return acquire(ctx, s, r)
	}
	if err := l.await(ctx, s, r.Try); err != nil {
		return nil, err
	}
	defer func() { // also if acquire panics
		if g == nil {
			<-l.turn
		}
	}()

	if k := l.lend(s); k != nil {
		g, err = k.grant(ctx)
	}
	if g == nil && err == nil {
		g, err = l.join(ctx, s, r, acquire)
	}
	if err != nil {
		return nil, err
	}
	g.AfterFunc(func() {
		if errors.Is(g.Err(), protocol.ErrLost) {
			l.mu.Lock()
			l.drop()
			l.mu.Unlock()
			<-l.turn
		}
	})
	return g, nil
}

// await waits for the caller's turn.
func (l *linger) await(ctx context.Context, s *recipe.Session, try bool) error {
	notice := time.AfterFunc(line.Notice, func() {
		l.recipe.Logger().Info("waits for a contender of this client",
			"path", l.recipe.Path(), "for", line.Notice, "held by this client", true)
	})
	defer notice.Stop()
	l.waiting.Add(1)
	err := l.turn.wait(ctx, s, try)
	if err != nil {
		l.waiting.Add(-1)
		l.settle() // the node may have been kept for this caller
	}
	return err
}

// lend returns the kept node, if it is one of s, to the caller whose turn it is.
func (l *linger) lend(s *recipe.Session) *kept {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting.Add(-1)
	k := l.kept
	if k == nil || k.session.ID() != s.ID() { // one of the sessions has ended
		return nil
	}
	k.used = true
	k.nodes.rest(k, false)
	return k
}

// join gets a node in line, and keeps it unless d is zero.
func (l *linger) join(ctx context.Context, s *recipe.Session, r *line.Request, acquire attempt) (*recipe.Grant, error) {
	l.settle() // the node may be another session's, and was kept for this caller
	if err := l.standBack(ctx, s, r.Try); err != nil {
		return nil, err
	}
	k := &kept{linger: l, session: s, used: true, strays: -1}
	request := *r
	request.Keep = func(remove removal) removal {
		k.remove = remove
		return k.leave
	}
	g, err := acquire(ctx, s, &request)
	if err != nil || l.d == 0 {
		return g, err
	}

	k.life, k.end = context.WithCancel(context.Background())
	k.node, k.token = l.recipe.Path()+"/"+g.Node(), g.Token()
	k.resumed, k.watch = s.Resumption(), s.Watch(k.node)
	k.nodes = lingerersOf(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop() // if there is one, its session has ended
	l.kept = k
	k.timer = time.AfterFunc(l.d, l.settle)
	k.nodes.add(k)
	s.Go(k.awaitContender)
	s.Go(k.awaitChange) // apart, as the line may not be listed for long
	return g, nil
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

// settle deletes the node in the background if it is not used and has to be given back.
func (l *linger) settle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.kept; k != nil && !k.used && l.due(k) {
		l.drop()
		k.session.Go(func(ctx context.Context, s *recipe.Session) { l.remove(ctx, k, s) })
	}
}

// due reports whether a node that is not used has to be given back. The caller holds mu.
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

// drop makes the next caller go to the line. The caller holds mu.
func (l *linger) drop() {
	if k := l.kept; k != nil {
		k.end()
		k.nodes.remove(k)
		k.timer.Stop()
		l.kept = nil
	}
}

// remove deletes the node. If it goes for a contender of another library, remove notes if that had
// gone before: if not, it holds the lock now.
func (l *linger) remove(ctx context.Context, k *kept, s *recipe.Session) error {
	err := k.remove(ctx, s)
	if visitor := k.visitor.Load(); visitor != nil && err == nil {
		select {
		case <-visitor.Changed():
			l.visited()
		default:
			k.session.Go(func(ctx context.Context, _ *recipe.Session) {
				if _, err := visitor.Ready(ctx); errors.Is(err, zk.ErrNoNode) {
					l.visited()
				}
			})
		}
	}
	return err
}

// visited notes that a contender of another library has come and gone without the lock: it has tried
// to get it. Two such visits in a row earn the third one a free lock.
func (l *linger) visited() {
	l.mu.Lock()
	if time.Since(l.visit) > visitsApart {
		l.visits = 0
	}
	l.visits, l.visit = l.visits+1, time.Now()
	if l.visits == 2 {
		l.visits, l.standby = 0, l.visit.Add(standsBack)
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
	select {
	case <-time.After(rest):
		return nil
	case <-s.Done():
		return s.Err()
	case <-ctx.Done():
		return recipe.Ended(ctx)
	}
}
