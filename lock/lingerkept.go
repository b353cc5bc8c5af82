package lock

import (
	"container/list"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
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
	deleted atomic.Bool
	watch   *recipe.Watch   // on the node; only the caller that has the ticket uses it
	life    context.Context // until the node is given back or lost
	end     context.CancelFunc
	nodes   *lingerers
	place   *list.Element // among nodes
	listed  [2]int        // when the line was last listed: how many children it had, and the linger's receipts

	// The mu of the linger protects these.
	used  bool
	timer *time.Timer // settles when the node was not used for d
	idle  time.Time   // when it was last used
	until time.Time   // when it must be given back; zero: as long as it is used
}

// fresh reports whether the node is as it was created, as far as this connection knows. Events of
// the time before a connection may be missing, so a node is lent over one connection only.
func (k *kept) fresh(ctx context.Context) bool {
	stat, err := k.watch.Ready(ctx)
	return err == nil && stat.Version == 0 && k.watch.Unchanged() && k.linger.client.State() == protocol.Connected
}

// leave ends the use by a lease that was given back, and deletes the node if it is not to be kept.
func (k *kept) leave(ctx context.Context, s *recipe.Session) error {
	l := k.linger

	l.mu.Lock()
	k.used, k.idle = false, time.Now()
	keep := k == l.kept && !l.due(k)
	if keep {
		k.timer.Reset(l.d)
	} else {
		l.drop(k)
	}
	ended := l.lease.Swap(nil)
	l.mu.Unlock()

	// The next caller need not wait for the deletion. If the lease was lost first, lost has put the
	// ticket back.
	if ended != nil {
		l.queue <- struct{}{}
	}
	if keep {
		return nil
	}
	return k.delete(ctx, s)
}

func (k *kept) delete(ctx context.Context, s *recipe.Session) error {
	defer k.deleted.Store(true)
	return k.remove(ctx, s)
}

// awaitContender calls itself whenever the line has changed, until another contender is in it, and
// says for how long the node may be kept then. A line that may not be listed may have contenders.
func (k *kept) awaitContender(ctx context.Context, s *recipe.Session) {
	l := k.linger

	// The listing sets the watch, so no contender is missed between the two.
	w := s.WatchChildren(l.recipe.Path())
	if same, err := w.Current(ctx); err != nil || !same {
		l.limit(k, 0)
		return
	}

	for _, n := range l.line.Among(w.Children()) {
		node := l.recipe.Path() + "/" + n.Node
		if node == k.node {
			continue
		} else if n.Owner == (recipe.Owner{}) {
			// A contender of another library is watched before our node goes, so that its own end
			// is seen.
			defer k.awaitVisitor(ctx, s.Watch(node))
		}
		l.limit(k, min(l.d, overtaking))
		return
	}

	// If there are as many children as before, a contender has come and gone meanwhile, or a
	// receipt. (One of them can go while the next one comes.)
	now := [2]int{len(w.Children()), int(l.receipts.Load())}
	if now == k.listed && !slices.ContainsFunc(w.Children(), layout.IsReceipt) {
		l.visited()
	}
	k.listed = now
	w.AfterChange(k.life, func() { s.Go(k.awaitContender) })
}

// awaitVisitor notes a visit if the contender of another library goes before the node does. After
// that, it has had the lock.
func (k *kept) awaitVisitor(ctx context.Context, visitor *recipe.Watch) {
	if _, err := visitor.Ready(ctx); errors.Is(err, zk.ErrNoNode) {
		k.linger.visited()
	} else if err == nil {
		visitor.AfterChange(ctx, func() {
			// It hasn't gone if only its data have changed (as an operator asks for the lock it
			// waits for).
			if visitor.Deleted() && !k.deleted.Load() {
				k.linger.visited()
			}
		})
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

// recheck asks the server whether the line or the node has changed.
func (k *kept) recheck(ctx context.Context, s *recipe.Session) {
	for _, w := range []*recipe.Watch{s.WatchChildren(k.linger.recipe.Path()), s.Watch(k.node)} {
		w.Ready(ctx)
		w.Recheck(ctx) // what Ready has met, it meets as well
	}
}
