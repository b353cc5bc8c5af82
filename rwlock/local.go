package rwlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// Limits for joining a node that is held, because writers of other sessions may wait behind it.
const (
	maxJoins = 256
	joinTime = 100 * time.Millisecond
)

// WithLocalSharing is for a lock that many goroutines of a process read. Readers hold one node
// together, which costs them no request of their own. The node is deleted when the last of them
// unlocks. Each reader has a [Lease] of its own. Leases that share a node have the same
// [Lease.Token] and [Lease.Node]. They are one entry of [RWMutex.Contenders] and are lost together.
//
// Readers join a node while it is in line, and for a while when it is held: until a caller of
// [RWMutex.Lock] comes, 256 readers have joined, or a tenth of a second has passed. Later readers
// get another node at the end of the line. So a writer of another session may have to wait for
// readers that came up to a tenth of a second later. A reader never waits longer than without the
// option. A node that another process deletes with [RWMutex.Break] can be joined until the server's
// event arrives (and in its first 20 milliseconds until these have passed).
//
// The node goes with its last reader. (A reader's node doesn't stay as lock.WithLinger keeps a
// contender's. The page docs/design.md says why.)
//
// Only callers of one RWMutex share nodes, so share the value and not only its path.
func WithLocalSharing() Option {
	return func(m *RWMutex) error {
		m.sharing = new(sharing)
		return nil
	}
}

// A sharing has the node that readers of one RWMutex may join.
type sharing struct {
	recipe *recipe.Recipe // of the nodes' grants; each lease has a grant of its own, which reports

	mu   sync.Mutex // protects open, and fields of places
	open *place     // nil if the next reader needs a node of its own
}

// A place is a node in line that readers share. It is in line on behalf of all of them, so the end
// of one reader's ctx does not end the wait of the others.
type place struct {
	mutex   *RWMutex
	session *recipe.Session
	stop    context.CancelFunc // of the wait

	ready chan struct{} // closed when the node is granted, or will not be
	grant *recipe.Grant // valid once ready is closed, like err and since
	err   error
	since time.Time

	// The mu of the sharing protects these.
	settled bool // ready is closed or about to be
	readers int  // that wait or hold
	joins   int  // since it is held
	leases  map[*recipe.Grant]struct{}
}

// take returns a grant to m under s: of the open node, or of a new node.
func (sh *sharing) take(ctx context.Context, s *recipe.Session, m *RWMutex, r *line.Request) (*recipe.Grant, error) {
	if sh == nil {
		return m.line.Join(ctx, s, r)
	}
	if exclusive(r.Kind) {
		if !r.Try {
			sh.close() // readers that come later are behind this writer
		}
		return m.line.Join(ctx, s, r)
	}

	p := sh.join(s, m, r)
	if p == nil {
		return m.line.Join(ctx, s, r)
	}
	g, err := p.wait(ctx)
	if err != nil {
		p.leave(ctx, nil)
	}
	return g, err
}

// close makes the next reader get a node of its own.
func (sh *sharing) close() {
	if sh == nil {
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.open = nil
}

// join makes the caller a reader of a place. There may be none for a request that must not wait.
func (sh *sharing) join(s *recipe.Session, m *RWMutex, r *line.Request) *place {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if p := sh.open; p != nil && p.session.ID() == s.ID() && p.joinable(r.Try) {
		p.readers++
		if p.settled {
			p.joins++
		}
		return p
	}
	if r.Try {
		return nil
	}

	ctx, stop := context.WithCancel(context.Background()) // the wait ends with the session, too
	p := &place{
		mutex: m, session: s, stop: stop, ready: make(chan struct{}), readers: 1,
		leases: make(map[*recipe.Grant]struct{}),
	}
	sh.open = p
	request := *r
	request.Recipe = sh.recipe
	started := s.Go(func(context.Context, *recipe.Session) {
		defer stop()
		if late := p.settle(m.line.Join(ctx, s, &request)); late != nil {
			late.Release(context.Background())
		}
	})
	if !started {
		sh.open = nil
		p.err = protocol.ErrClosed
		close(p.ready)
	}
	return p
}

// joinable is for callers that hold mu.
func (p *place) joinable(try bool) bool {
	if !p.settled {
		return !try
	}
	if p.err != nil || p.joins >= maxJoins || time.Since(p.since) >= joinTime || p.grant.Err() != nil {
		return false
	}
	for g := range p.leases { // any lease may know first
		select {
		case <-g.Done():
			if errors.Is(g.Err(), protocol.ErrLost) {
				return false
			}
		default:
		}
	}
	return true
}

// settle ends the wait for the node. It returns the grant if no reader waits for it any more.
func (p *place) settle(g *recipe.Grant, err error) (late *recipe.Grant) {
	sh := p.mutex.sharing
	sh.mu.Lock()
	defer sh.mu.Unlock()
	p.grant, p.err, p.since, p.settled = g, err, time.Now(), true
	close(p.ready)
	if p.readers == 0 {
		return g
	}
	if g != nil {
		g.AfterFunc(p.check)
	}
	return nil
}

// check makes all leases find out that the node is gone, even leases that don't watch it yet.
func (p *place) check() {
	if !errors.Is(p.grant.Err(), protocol.ErrLost) {
		return
	}
	sh := p.mutex.sharing
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for g := range p.leases {
		p.session.Go(func(ctx context.Context, _ *recipe.Session) { g.Verify(ctx) })
	}
}

// wait returns a grant of the reader's own, whose end makes it leave.
func (p *place) wait(ctx context.Context) (*recipe.Grant, error) {
	select {
	case <-p.ready:
	case <-ctx.Done():
		return nil, recipe.Ended(ctx)
	}
	if p.err != nil {
		return nil, p.err
	}

	r := p.mutex.read.Recipe
	var g *recipe.Grant
	g, err := r.NewGrant(ctx, p.session, r.Path()+"/"+p.grant.Node(), p.grant.Token(),
		func(ctx context.Context, _ *recipe.Session) error { return p.leave(ctx, g) })
	if err != nil {
		return nil, err
	}
	sh := p.mutex.sharing
	sh.mu.Lock()
	p.leases[g] = struct{}{}
	sh.mu.Unlock()
	if p.grant.Err() != nil { // check may have come too early
		g.Verify(ctx)
	}
	return g, nil
}

// leave is for a reader that has given up, or has given its lease g back. The last reader deletes
// the node. A reader that has lost its lease does not leave: then the node is gone, or its session.
func (p *place) leave(ctx context.Context, g *recipe.Grant) error {
	sh := p.mutex.sharing
	sh.mu.Lock()
	p.readers--
	delete(p.leases, g)
	last := p.readers == 0
	if last && sh.open == p {
		sh.open = nil
	}
	held := p.grant
	sh.mu.Unlock()

	if !last {
		return nil
	}
	p.stop()
	if held == nil {
		return nil
	}
	return held.Release(ctx)
}
