package line

import (
	"context"
	"strings"
	"sync"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// listings shares listings of a path between the contenders of a session. One that is under way may
// have missed what a contender has to see. So a contender shares the next one with all that ask
// meanwhile. It is safe for concurrent use.
type listings struct {
	mu      sync.Mutex // protects what follows
	running bool       // a goroutine makes listings until none is asked for
	next    *listing   // the one that is asked for and has not begun
}

// A listing is what there was at a path. All but done is valid once done is closed, and not to be
// changed then.
type listing struct {
	done     chan struct{}
	children []string
	names    []Name // the contenders among them, first come first
	err      error
}

// shared returns the listings of the line's path under s, which all lines of its kinds share.
func (l *Line) shared(s *protocol.Session) *listings {
	type key struct{ path, kinds string }
	k := key{l.recipe.Path(), strings.Join(l.names, "\x00")}
	return protocol.Shared(s, k, func() *listings { return new(listings) })
}

// list returns a listing of the line as of a moment after the call.
func (l *Line) list(ctx context.Context, s *protocol.Session, ls *listings) (*listing, error) {
	ls.mu.Lock()
	next, begin := ls.next, !ls.running
	if next == nil {
		next = &listing{done: make(chan struct{})}
		ls.next, ls.running = next, true
	}
	ls.mu.Unlock()
	if begin && !s.Go(func(context.Context) { ls.run(l, s) }) {
		ls.run(l, s) // which fails, as the client was closed
	}

	select {
	case <-next.done:
		return next, next.err
	case <-ctx.Done():
		_, err := l.children(ctx, s) // returns why
		return next, err
	}
}

// run makes listings for as long as there are contenders that ask for one. No contender's ctx ends
// them, as others may share them.
func (ls *listings) run(l *Line, s *protocol.Session) {
	for {
		ls.mu.Lock()
		list := ls.next
		ls.next, ls.running = nil, list != nil
		ls.mu.Unlock()
		if list == nil {
			return
		}
		list.children, list.err = l.children(context.Background(), s)
		list.names = l.parse(list.children)
		close(list.done)
	}
}
