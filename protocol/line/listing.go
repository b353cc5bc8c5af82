package line

import (
	"context"
	"sync"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// listings shares listings of a line between the contenders of a session. One that is under way may
// have missed what a contender has to see. So a contender waits for its end, and shares the next
// one with all that ask meanwhile. It is safe for concurrent use.
type listings struct {
	mu      sync.Mutex // protects what follows
	running *listing
	next    *listing // it has not begun
}

// A listing is made by the contender that asked for it first.
type listing struct {
	session  int64
	done     chan struct{}
	children []string // valid once done is closed, and not to be changed
	names    []Name   // likewise
	err      error    // likewise
}

// list returns the line's children, and the contenders among them, as of a moment after the call.
func (l *Line) list(ctx context.Context, s *protocol.Session) ([]string, []Name, error) {
	ls := &l.listings
	ls.mu.Lock()
	if shared := ls.next; shared != nil && shared.session == s.ID() {
		ls.mu.Unlock()
		select {
		case <-shared.done:
			if shared.err == nil {
				return shared.children, shared.names, nil
			}
		case <-ctx.Done():
		}
		return l.listAlone(ctx, s) // the other contender may have given up, or we have
	}

	// Of two sessions in a row each has its own.
	before := ls.running
	if ls.next != nil || before != nil && before.session != s.ID() {
		ls.mu.Unlock()
		return l.listAlone(ctx, s)
	}
	own := &listing{session: s.ID(), done: make(chan struct{})}
	ls.next = own
	ls.mu.Unlock()
	if before != nil {
		select {
		case <-before.done:
		case <-ctx.Done():
		}
	}

	// From now on others wait for the next one.
	ls.mu.Lock()
	ls.running, ls.next = own, nil
	ls.mu.Unlock()
	own.children, own.names, own.err = l.listAlone(ctx, s)
	ls.mu.Lock()
	if ls.running == own {
		ls.running = nil
	}
	ls.mu.Unlock()
	close(own.done)
	return own.children, own.names, own.err
}

func (l *Line) listAlone(ctx context.Context, s *protocol.Session) ([]string, []Name, error) {
	children, err := l.children(ctx, s)
	return children, l.parse(children), err
}
