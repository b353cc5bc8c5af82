package sim

import (
	"path"
	"sync"
	"time"
)

// forced has what was taken from its holder by force, and when: of that a holder hears only afterwards. Its zero value
// is ready for use.
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

// since tells when a turn may have been over first, if that was by force.
func (f *forced) since(t *Turn) (at time.Time, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := f.tokens[t.token]
	if t.shared {
		taken = time.Time{} // of the round: its other nodes are not what the turn stands on
	}
	for _, candidate := range []time.Time{f.sessions[t.session], f.names[t.node], taken} {
		if !candidate.IsZero() && (at.IsZero() || candidate.Before(at)) {
			at = candidate
		}
	}
	return at, !at.IsZero()
}
