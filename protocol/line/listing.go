package line

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"weak"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// listings shares listings of a path between the contenders of a session. One that is under way may
// have missed what a contender has to see. So a contender shares the next one with all that ask
// meanwhile. One that has just joined may also share the latest, if that has its node. It is safe
// for concurrent use.
type listings struct {
	mu      sync.Mutex            // protects what follows
	running bool                  // a goroutine makes listings until none is asked for
	next    *listing              // the one that is asked for and has not begun
	latest  weak.Pointer[listing] // the last one that has begun; only contenders keep it
}

// A listing is what there was at a path. All but done is valid once done is closed, and not to be
// changed then.
type listing struct {
	done     chan struct{}
	children []string
	names    []Name // the contenders among them, first come first
	data     []byte // of the line's node, if it has a rule, as of then or later
	err      error
}

// shared returns the listings of the line's path under s, which all lines of its kinds share.
func (l *Line) shared(s *recipe.Session) *listings {
	type key struct{ path, kinds string }
	k := key{l.recipe.Path(), strings.Join(l.names, "\x00")}
	return recipe.Shared(s, k, func() *listings { return new(listings) })
}

// find returns the index of a contender's node among the names, or -1.
func (l *listing) find(own *recipe.Own) int { return find(l.names, own.Name(), own.Sequence()) }

// listWith returns a listing as of a moment after this node was created. Any that has the node is
// one. If data are not nil, it is a listing with these data, or a new one: so contenders that have
// waited share a listing after a change of their rule. What has gone meanwhile they find out when
// they watch it.
func (l *Line) listWith(ctx context.Context, s *recipe.Session, ls *listings, own *recipe.Own, data []byte) (*listing, error) {
	ls.mu.Lock()
	latest := ls.latest.Value()
	ls.mu.Unlock()
	if latest != nil && l.wait(ctx, s, latest) == nil && latest.find(own) >= 0 &&
		(data == nil || bytes.Equal(latest.data, data)) {
		return latest, nil
	}
	return l.list(ctx, s, ls)
}

// list returns a listing of the line as of a moment after the call.
func (l *Line) list(ctx context.Context, s *recipe.Session, ls *listings) (*listing, error) {
	ls.mu.Lock()
	next, begin := ls.next, !ls.running
	if next == nil {
		next = &listing{done: make(chan struct{})}
		ls.next, ls.running = next, true
	}
	ls.mu.Unlock()
	if begin && !s.Go(func(context.Context, *recipe.Session) { ls.run(l, s) }) {
		ls.run(l, s) // which fails, as the client was closed
	}

	return next, l.wait(ctx, s, next)
}

// wait blocks until the listing is there, and returns its error. If ctx ends first, it returns why.
func (l *Line) wait(ctx context.Context, s *recipe.Session, list *listing) error {
	select {
	case <-list.done:
		return list.err
	case <-ctx.Done():
		_, _, err := l.children(ctx, s) // returns why
		return err
	}
}

// run makes listings for as long as there are contenders that ask for one. No contender's ctx ends
// them, as others may share them.
func (ls *listings) run(l *Line, s *recipe.Session) {
	for {
		ls.mu.Lock()
		list := ls.next
		ls.next, ls.running = nil, list != nil
		if list != nil {
			ls.latest = weak.Make(list)
		}
		ls.mu.Unlock()
		if list == nil {
			return
		}
		list.children, list.data, list.err = l.children(context.Background(), s)
		list.names = l.parse(list.children)
		close(list.done)
	}
}
