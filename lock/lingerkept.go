package lock

import (
	"container/list"
	"context"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

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
	resumed <-chan struct{} // the session's Resumption when the node was last read
	life    context.Context // until the node is given back or lost
	end     context.CancelFunc
	nodes   *lingerers
	strays  int                          // how many children of the line were no contenders; -1 before the first listing
	visitor atomic.Pointer[recipe.Watch] // on the contender that came, if it is another library's

	// The mu of the linger protects these.
	used  bool
	timer *time.Timer // settles when the node was not used for d
	idle  time.Time   // when it was last used
	until time.Time   // when it has to be given back; zero: as long as it is used

	place *list.Element // among the unused; the mu of nodes protects it
}

// grant returns a grant on the node to the caller whose turn it is, or nil if the caller has to go to
// the line. It makes a request only if the session has to be confirmed, or if there was a reconnect
// since the node was read.
func (k *kept) grant(ctx context.Context) (g *recipe.Grant, err error) {
	l := k.linger
	defer func() {
		if g == nil {
			l.mu.Lock()
			k.rest()
			l.mu.Unlock()
			l.settle()
		}
	}()
	if _, err := k.session.Confirm(ctx); err != nil {
		return nil, err
	}
	same, err := k.same(ctx)
	if err != nil && (ctx.Err() != nil || k.session.Err() != nil) {
		return nil, err
	} else if err != nil || !same {
		l.limit(k, 0)
	}

	l.mu.Lock()
	over := l.over(k) // it may have waited for a connection
	l.mu.Unlock()
	if over {
		return nil, nil
	}
	return l.recipe.NewGrant(ctx, k.session, k.node, k.token, k.leave)
}

// same reports whether the node is as it was created, whether or not awaitChange knows already. After
// a reconnect it asks a server that knows all that had happened by then: the next one may lag.
func (k *kept) same(ctx context.Context) (same bool, err error) {
	stat, err := k.watch.Ready(ctx)
	if err != nil || stat.Version > 0 {
		return false, err
	} else if k.linger.client.State() == protocol.Connected && k.resumed == k.session.Resumption() {
		return k.watch.Current(ctx)
	}
	for {
		k.resumed = k.session.Resumption()
		if err := k.session.Sync(ctx, k.node); err != nil {
			return false, err
		}
		if same, err := k.watch.Recheck(ctx); err != nil || !same || k.resumed == k.session.Resumption() {
			return same, err
		}
	}
}

// leave ends the turn of a lease that was given back, and deletes the node if it is not to be kept.
func (k *kept) leave(ctx context.Context, s *recipe.Session) error {
	l := k.linger
	l.mu.Lock()
	due := l.kept != k
	if !due {
		k.idle = time.Now()
		k.rest()
		if due = l.due(k); due {
			l.drop()
		}
	}
	l.mu.Unlock()
	<-l.turn
	if due {
		return l.remove(ctx, k, s)
	}
	for old := k.nodes.excess(l.most); old != nil; old = k.nodes.excess(l.most) {
		old.linger.limit(old, 0)
	}
	return nil
}

// rest begins the time for which the node may stay unused, or goes on with it. The caller holds the
// mu of the linger.
func (k *kept) rest() {
	k.used = false
	k.nodes.rest(k, true)
	k.timer.Reset(max(k.linger.d-time.Since(k.idle), time.Millisecond))
}

// awaitContender calls itself whenever the line has changed, until another contender is in it, and
// says for how long the node may be kept then. A line that may not be listed may have contenders.
func (k *kept) awaitContender(ctx context.Context, s *recipe.Session) {
	l := k.linger
	for k.life.Err() == nil {
		w := s.WatchChildren(l.recipe.Path())
		same, err := w.Current(ctx)
		if err != nil {
			l.limit(k, 0)
			return
		} else if !same {
			continue
		}
		inLine := l.line.Among(w.Children())
		for _, n := range inLine {
			if l.recipe.Path()+"/"+n.Node == k.node {
				continue
			}
			if n.Owner == (recipe.Owner{}) {
				k.visitor.Store(s.Watch(l.recipe.Path() + "/" + n.Node))
			}
			l.limit(k, min(l.d, overtaking))
			return
		}

		strays := len(w.Children()) - len(inLine)
		if strays == k.strays && !l.receipts.Load() {
			l.visited() // or what has changed?
		}
		k.strays = strays
		w.AfterChange(k.life, func() { s.Go(k.awaitContender) })
		return
	}
}

// awaitChange has the node given back when it has changed or gone: it was revoked, or broken.
func (k *kept) awaitChange(ctx context.Context, s *recipe.Session) {
	w := s.Watch(k.node)
	if stat, err := w.Ready(ctx); err != nil || stat.Version > 0 {
		k.linger.limit(k, 0)
		return
	}
	w.AfterChange(k.life, func() { k.linger.limit(k, 0) })
}
