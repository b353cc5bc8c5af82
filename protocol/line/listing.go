package line

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"weak"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// listings shares listings of a path between the contenders of a session. A listing under way may
// have missed a change that a contender must see. So the contender shares the next listing, with
// all contenders that ask meanwhile. A contender that has just joined can also share the latest
// listing, if that has its node. listings is safe for concurrent use.
type listings struct {
	mu      sync.Mutex            // protects the fields below
	running bool                  // a goroutine makes listings as long as contenders want one
	next    *listing              // the listing that contenders want, and that hasn't begun
	latest  weak.Pointer[listing] // the last listing that has begun; only contenders keep it
}

// A listing has the children of a path. Its fields are valid once done is closed, and must not be
// changed then.
type listing struct {
	done     chan struct{}
	children []string
	names    []Name // the contenders among the children, in order of arrival
	data     []byte // of the line's node, if the line has a rule; as of the listing or later
	err      error
}

// shared returns the listings of the line's path under s. All lines of its kinds share them.
func (l *Line) shared(s *recipe.Session) *listings {
	type key struct{ path, kinds string }
	k := key{l.recipe.Path(), strings.Join(l.names, "\x00")}
	return recipe.Shared(s, k, func() *listings { return new(listings) })
}

// find returns the index of a contender's node among the names, or -1.
func (l *listing) find(own *recipe.Own) int { return find(l.names, own.Name(), own.Sequence()) }

// listWith returns a listing that has this node. If data isn't nil, the listing has this data, or
// is new. So waiters share a listing after a change of their rule. (If a contender has gone since
// the listing, they find out when they watch it.)
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
		ls.run(l, s) // the client was closed, so this fails at once
	}

	return next, l.wait(ctx, s, next)
}

// wait blocks until the listing is done, and returns its error. If ctx ends first, it returns why.
func (l *Line) wait(ctx context.Context, s *recipe.Session, list *listing) error {
	select {
	case <-list.done:
		return list.err
	case <-ctx.Done():
		_, _, err := l.children(ctx, s) // returns why
		return err
	}
}

// run makes listings as long as contenders want one. No contender's ctx ends them, because others
// share them.
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
		list.names = l.Among(list.children)
		close(list.done)
	}
}
