package election

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

const (
	// recheckAfter is how often a feed asks the server whether it has missed something. It does so
	// just before [recipe.Watch.Wait] would.
	recheckAfter = time.Minute - time.Second

	// successors is how many candidates of a listing a feed keeps, however long the line is.
	successors = 8
)

// feeds has the feed of one election in one session, if there is one.
type feeds struct {
	mu   sync.Mutex // protects feed and its fields
	feed *feed
}

// A feed follows the leader for all observers of one session. Its goroutine lasts while there are
// observers, and the session.
//
// A change of leader costs one request. The feed knows the next candidates from its last listing.
// When the leader's node is gone, it reads and watches the first known candidate that is left. That
// candidate leads: an earlier candidate would have a smaller number and would be in the listing. So
// the feed lists the line only when no known candidate is left. The listing also watches the line,
// so that a vacancy is known and watched in one request.
//
// This needs names that are never used again, such as ours. Other libraries' names can come again
// after the line's node was deleted and created. So the feed uses a listing only up to the first
// foreign name.
type feed struct {
	election *Election
	session  *recipe.Session
	shared   *feeds
	stop     context.CancelFunc

	// The mu of shared protects these.
	observers int
	begun     int                // how many observers have begun, some of which may have left
	reached   int                // how many of them had begun when leader led, or earlier
	leader    Leader             // valid if reached is not 0
	err       error              // why there is no more to come
	caughtUp  chan struct{}      // closed when reached grows, or err is set
	changed   chan struct{}      // closed when leader changes, or err is set
	wake      context.CancelFunc // makes the goroutine look at begun

	// These belong to the goroutine.
	synced int       // how many observers had begun when the server caught up last
	more   bool      // the last listing had more candidates than the feed has kept
	gone   string    // the last candidate that was found to be gone
	due    time.Time // for asking the server again
	listed bool      // that was a listing last time
}

// join makes the caller an observer, which it is until it calls leave. The caller's number is for
// [feed.read].
func (e *Election) join(s *recipe.Session) (f *feed, number int) {
	shared := recipe.Shared(s, e.recipe.Path(), func() *feeds { return new(feeds) })
	shared.mu.Lock()
	defer shared.mu.Unlock()

	f = shared.feed
	if f == nil || f.observers == 0 || f.err != nil {
		f = &feed{
			election: e, session: s, shared: shared,
			caughtUp: make(chan struct{}), changed: make(chan struct{}), wake: func() {},
		}
		shared.feed = f
		f.start()
	}
	f.observers++
	f.begun++
	f.wake()
	return f, f.begun
}

func (f *feed) start() {
	ctx, stop := context.WithCancel(context.Background()) // every call ends with the session, too
	f.stop = stop
	started := f.session.Go(func(context.Context, *recipe.Session) {
		defer stop()
		err := f.follow(ctx)
		f.shared.mu.Lock()
		defer f.shared.mu.Unlock()
		f.end(err)
	})
	if !started {
		f.end(protocol.ErrClosed)
	}
}

// end tells all observers that the feed has ended. The caller holds mu.
func (f *feed) end(err error) {
	f.err = err
	close(f.caughtUp)
	close(f.changed)
}

func (f *feed) leave() {
	f.shared.mu.Lock()
	defer f.shared.mu.Unlock()
	if f.observers--; f.observers == 0 {
		f.stop()
	}
}

// read returns the leader as of a moment after the observer with this number has begun, and a
// channel that is closed when that has changed. It blocks until then, ctx ends or the feed does.
func (f *feed) read(ctx context.Context, number int) (_ Leader, changed <-chan struct{}, err error) {
	for {
		f.shared.mu.Lock()
		leader, changed, err := f.leader, f.changed, f.err
		reached, caughtUp := f.reached, f.caughtUp
		f.shared.mu.Unlock()
		if err != nil || reached >= number {
			return leader, changed, err
		}

		select {
		case <-caughtUp:
		case <-ctx.Done():
			return Leader{}, nil, recipe.Ended(ctx)
		}
	}
}

// publish tells the observers who leads.
func (f *feed) publish(leader Leader) {
	f.shared.mu.Lock()
	defer f.shared.mu.Unlock()
	if f.reached == 0 || !f.leader.same(leader) {
		f.leader = leader
		f.due = time.Now().Add(recheckAfter)
		close(f.changed)
		f.changed = make(chan struct{})
	}
	if f.reached < f.synced {
		f.reached = f.synced
		close(f.caughtUp)
		f.caughtUp = make(chan struct{})
	}
}

// follow publishes the leader until ctx or the session ends.
func (f *feed) follow(ctx context.Context) error {
	if err := f.catchUp(ctx); err != nil {
		return err
	}
	names, err := f.list(ctx)
	for err == nil {
		switch {
		case len(names) > 0:
			names, err = f.incumbent(ctx, names)
		case f.more:
			names, err = f.list(ctx) // a watch would keep the whole listing
		default:
			names, err = f.vacancy(ctx)
		}
	}
	return err
}

// catchUp makes the server catch up if observers have begun. All of them share one Sync.
func (f *feed) catchUp(ctx context.Context) error {
	f.shared.mu.Lock()
	begun := f.begun
	f.shared.mu.Unlock()
	if begun == f.synced {
		return nil
	}
	if err := f.session.Sync(ctx, f.election.recipe.Path()); err != nil {
		return err
	}
	f.synced = begun
	return nil
}

// list returns the candidates that will lead one after the other.
func (f *feed) list(ctx context.Context) ([]line.Name, error) {
	names, err := f.election.line.Names(ctx, f.session)
	return f.keep(names), err
}

// keep returns the candidates of a listing that the feed keeps.
func (f *feed) keep(names []line.Name) []line.Name {
	kept := names[:min(len(names), successors)]
	for i, n := range kept {
		if i > 0 && n.Owner == (recipe.Owner{}) {
			kept = kept[:i]
			break
		}
	}
	f.more = len(kept) < len(names)
	return slices.Clone(kept)
}

// incumbent publishes the first of the candidates as the leader, until that may have changed. It
// returns the candidates that are left.
func (f *feed) incumbent(ctx context.Context, names []line.Name) ([]line.Name, error) {
	if err := f.catchUp(ctx); err != nil {
		return nil, err
	}
	node := names[0].Node
	w := f.session.Watch(f.election.recipe.Path() + "/" + node)
	same, err := w.Current(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		f.gone = node
		if names[0].Replaceable() {
			return f.list(ctx)
		}
		return names[1:], nil
	} else if err != nil || !same {
		return names, err
	}
	stat, err := w.Ready(ctx)
	if err != nil {
		return nil, err
	}
	f.publish(leaderOf(node, w.Data(), stat))

	due, err := f.wait(ctx, w)
	switch {
	case err != nil:
		return nil, err
	case w.Deleted():
		f.gone = node
		return names[1:], nil
	case due && len(names) == 1 && !f.listed:
		// In turn with the recheck, a listing finds out who is next.
		f.listed = true
		return f.list(ctx)
	case due:
		f.listed = false
		_, err = w.Recheck(ctx)
	}
	return names, err
}

// vacancy lists and watches the line. It publishes that there is no leader, until there may be one.
// It returns the candidates.
func (f *feed) vacancy(ctx context.Context) ([]line.Name, error) {
	if err := f.catchUp(ctx); err != nil {
		return nil, err
	}
	w := f.session.WatchChildren(f.election.recipe.Path())
	same, err := w.Current(ctx)
	if err != nil || !same {
		return nil, err
	}
	if names := f.election.line.Among(w.Children()); len(names) > 0 {
		if !slices.ContainsFunc(names, func(n line.Name) bool { return n.Node == f.gone }) {
			return f.keep(names), nil
		}
		// The listing is old, because its watch has missed its event.
		if _, err := w.Recheck(ctx); err != nil {
			return nil, err
		}
		return f.list(ctx)
	}
	f.publish(Leader{})

	due, err := f.wait(ctx, w)
	switch {
	case err != nil:
		return nil, err
	case due:
		_, err = w.Recheck(ctx)
		return nil, err
	case !w.Unchanged():
		return f.list(ctx)
	}
	return nil, nil
}

// wait blocks until w has changed, an observer has begun, or it is due to ask the server again,
// which it reports.
func (f *feed) wait(ctx context.Context, w *recipe.Watch) (due bool, err error) {
	if !f.due.After(time.Now()) {
		f.due = time.Now().Add(recheckAfter)
	}
	waiting, wake := context.WithDeadline(ctx, f.due)
	defer wake()

	f.shared.mu.Lock()
	f.wake = wake
	begun := f.begun > f.synced
	f.shared.mu.Unlock()
	if begun {
		return false, nil
	}

	// The watch is not used again if its Wait was cut short, which may have cut short its recheck.
	err = w.Wait(waiting)
	if waiting.Err() != nil && ctx.Err() == nil && f.session.Err() == nil {
		return errors.Is(waiting.Err(), context.DeadlineExceeded), nil
	}
	return false, err
}
