package lock

import (
	"context"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

const (
	// visitsApart is how far apart the tries of one contender may be.
	visitsApart = 3 * time.Second

	// standsBack is for how long callers leave a lock alone that another library has tried in vain.
	standsBack = 1200 * time.Millisecond
)

// visits are tries of another library: its contender has come and gone while the node was here. Two of
// them in a row earn the third one a free lock.
type visits struct {
	n    int
	last time.Time
}

// rest is for how long the lock is left alone.
func (v *visits) rest() time.Duration {
	if v.n < 2 {
		return 0
	}
	return max(0, time.Until(v.last.Add(standsBack)))
}

// noteVisit counts the visitor if it has gone. By now, our node has just gone: if the visitor has not,
// it waits, and holds the lock.
func (l *linger) noteVisit(ctx context.Context, s *recipe.Session, visitor string) {
	names, err := l.mutex.line.Names(ctx, s)
	if err == nil {
		l.visited(!slices.ContainsFunc(names, func(n line.Name) bool { return n.Node == visitor }))
	}
}

// visited notes that a contender has come, and whether it has gone without the lock.
func (l *linger) visited(gone bool) {
	l.mu.Lock()
	v := &l.visits
	if !gone || time.Since(v.last) > visitsApart {
		v.n = 0
	}
	if gone {
		v.n, v.last = v.n+1, time.Now()
	}
	if k := l.kept; k != nil && v.rest() > 0 {
		k.until = time.Now()
	}
	l.mu.Unlock()
	l.settle()
}

// standBack waits while the lock is left alone: until another contender is in line, as a rule.
func (l *linger) standBack(ctx context.Context, s *recipe.Session, try bool) error {
	l.mu.Lock()
	rest := l.visits.rest()
	l.mu.Unlock()
	if rest == 0 {
		return nil
	} else if try {
		return line.ErrBusy
	}
	soon, cancel := context.WithTimeout(ctx, rest)
	defer cancel()
	err := s.WaitChildren(soon, l.mutex.recipe.Path(), func(children []string) bool {
		return slices.ContainsFunc(l.mutex.line.Among(children), func(n line.Name) bool {
			return n.Owner.Session != s.ID() // the node that was given back for this may still be there
		})
	})
	if err != nil && (soon.Err() == nil || ctx.Err() != nil) {
		return err
	}
	l.mu.Lock()
	l.visits.n = 0
	l.mu.Unlock()
	return nil
}
