package queue

import (
	"context"
	"sync"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// claimBytes bounds the claims of a session. When a session ends, the server writes the paths of
// its ephemeral nodes into one transaction. It does not start again if that has more than two
// megabytes.
const claimBytes = 400_000

// A budget counts the bytes of the claims of a session, of all its queues.
type budget struct {
	session *protocol.Session

	mu    sync.Mutex // protects what follows
	used  int
	freed chan struct{} // closed when some are given back
	short int           // the bytes that were refused last
}

// budgetOf returns the budget of a session.
func budgetOf(s *protocol.Session) *budget {
	return protocol.Shared(s, struct{}{}, func() *budget {
		return &budget{session: s, freed: make(chan struct{})}
	})
}

// take takes n bytes, and reports whether there were as many.
func (b *budget) take(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > claimBytes {
		b.short = n
		return false
	}
	b.used += n
	return true
}

// give gives n bytes back.
func (b *budget) give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	close(b.freed)
	b.freed = make(chan struct{})
}

// await blocks until there is room for what was refused last, the session is over, or ctx ends.
// Then it returns ctx's error.
func (b *budget) await(ctx context.Context) error {
	for {
		b.mu.Lock()
		room, freed := b.used+b.short <= claimBytes, b.freed
		b.mu.Unlock()
		if room || b.session.Err() != nil {
			return nil
		}
		select {
		case <-freed:
		case <-b.session.Done():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// afford takes what a claim costs from the budget, and reports whether there was as much.
func (p *perSession) afford(c *claim) bool {
	if !p.budget.take(p.bytes(c)) {
		return false
	}
	p.claims.Add(1)
	return true
}
