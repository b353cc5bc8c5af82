package sim

import (
	"path"
	"sync"
	"time"
)

// forced records which sessions and nodes were ended by force, and when. Their holders learn of
// that only afterwards. Its zero value is ready for use.
type forced struct {
	mu       sync.Mutex // protects what follows
	sessions map[int64]time.Time
	names    map[string]time.Time
	tokens   map[int64]time.Time
}

func (f *forced) session(id int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first(&f.sessions, id)
}

func (f *forced) node(node string, czxid int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first(&f.names, path.Base(node))
	first(&f.tokens, czxid)
}

func first[K comparable](m *map[K]time.Time, key K) {
	if *m == nil {
		*m = make(map[K]time.Time)
	}
	if _, ok := (*m)[key]; !ok {
		(*m)[key] = time.Now()
	}
}

// since returns the earliest time at which a turn may have been ended by force, if there is one.
func (f *forced) since(t *Turn) (at time.Time, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()

	taken := f.tokens[t.token]
	if t.shared {
		taken = time.Time{} // the token belongs to the round, and not to the node of this turn
	}

	for _, candidate := range []time.Time{f.sessions[t.session], f.names[t.node], taken} {
		if !candidate.IsZero() && (at.IsZero() || candidate.Before(at)) {
			at = candidate
		}
	}

	return at, !at.IsZero()
}
