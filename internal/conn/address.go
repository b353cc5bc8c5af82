package conn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/pace"
)

const (
	// lookupTimeout bounds the lookup of a name. It's long because a resolver can first wait for a
	// silent name server. A session that needs an address sooner uses the server's former
	// addresses.
	lookupTimeout = 20 * time.Second

	// lookupPause is the least time between two lookups of a name while a session has no lock to
	// lose (at most its place in line).
	lookupPause = 30 * time.Second
)

// addresses resolves the names of servers. It belongs to the client, so it outlives sessions. It is
// safe for concurrent use.
type addresses struct {
	mu      sync.Mutex         // protects the fields below
	lookups map[string]*lookup // the last lookup of each server
	settled chan struct{}      // closed, and made anew, when a lookup ends
}

// A lookup is one attempt to resolve the name of a server.
type lookup struct {
	server string // in the connect string
	began  time.Time

	// The mutex of the addresses protects these.
	ended time.Time // zero while the lookup is under way
	found []string  // host and port; of an earlier lookup until this one has succeeded
	err   error
}

// doubt notes that a former address of a server was wrong, so that its name is resolved anew. If
// the last lookup failed, a new lookup isn't urgent.
func (a *addresses) doubt(server string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.lookups[server]; l != nil && l.err == nil && !l.ended.IsZero() {
		l.began = time.Time{}
	}
}

// lookUp returns the lookup of a server that is under way or has begun within age, or begins one.
func (e *Ensemble) lookUp(server string, age time.Duration) *lookup {
	a := &e.addresses
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.lookups[server]; l != nil && (l.ended.IsZero() || time.Since(l.began) < age) {
		return l
	}

	l := &lookup{server: server, began: time.Now()}
	host, port, _ := net.SplitHostPort(server)
	if _, err := netip.ParseAddr(host); err == nil || e.Lookup == nil {
		l.ended, l.found = l.began, []string{server} // the user's dialer resolves names itself
		return l
	}

	if a.lookups == nil {
		a.lookups, a.settled = make(map[string]*lookup), make(chan struct{})
	}
	// A session that can't wait for the lookup uses the addresses of the lookup before.
	if former := a.lookups[server]; former != nil {
		l.found = former.found
	}
	a.lookups[server] = l

	resolve := func(ctx context.Context) {
		ctx, cancel := context.WithTimeoutCause(ctx, lookupTimeout, errors.New("not resolved in time"))
		defer cancel()
		hosts, err := pace.Call(ctx, "resolver", func() ([]string, error) { return e.Lookup(ctx, host) }, nil)
		if err == nil && len(hosts) == 0 {
			err = errors.New("no address")
		}
		a.settle(l, hosts, port, err)
	}

	if !e.Spawn(func() { resolve(e.Closing) }) {
		go resolve(e.Work) // for the last session of a client that is being closed
	}

	return l
}

// settle ends a lookup.
func (a *addresses) settle(l *lookup, hosts []string, port string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l.err, l.ended = err, time.Now()
	if err == nil {
		l.found = nil
		for _, host := range hosts {
			l.found = append(l.found, net.JoinHostPort(host, port))
		}
	}
	close(a.settled)
	a.settled = make(chan struct{})
}

// targets returns the addresses that l found, in random order. Former addresses (from an earlier
// lookup) are only for a session that is resumed: today they may belong to another ensemble, which
// can't resume it but could open a new session. The caller holds the mutex of the addresses.
func (l *lookup) targets(since time.Time, resumes bool) (all []target) {
	former := l.err != nil || l.ended.Before(since)
	if former && !resumes {
		return nil
	}

	for _, address := range l.found {
		all = append(all, target{server: l.server, address: address, former: former})
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// A route yields addresses of servers to dial, one after the other. A round has every address of
// every name because a server can accept connections and not serve. It is not safe for concurrent
// use.
type route struct {
	ensemble *Ensemble
	servers  []string // in the order of the next round
	began    time.Time
	open     []*lookup // lookups of this round whose targets weren't taken yet
	round    []target  // the rest of this round's targets
	size     int       // of a round so far
	empty    bool      // this round has had no target so far
	err      error     // of a lookup
}

func newRoute(e *Ensemble) *route {
	return &route{ensemble: e, servers: shuffled(e.Servers), size: len(e.Servers)}
}

// worked notes that the last target accepted the session. The rest of the round is dropped because
// it would be stale by the next failure. The next round begins with the server after this target.
func (r *route) worked(t target) {
	r.round, r.open = nil, nil
	if i := slices.Index(r.servers, t.server); i >= 0 {
		r.servers = slices.Concat(r.servers[i+1:], r.servers[:i+1])
	}
}

// next returns the next target. It blocks until a name is resolved, for at most timeout, or until
// ctx ends. In a slow search, a round is one server (one lookup and one dial).
func (r *route) next(ctx context.Context, timeout time.Duration, f search) target {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if f.slow { // the rest of the round may be stale after a long pause
		r.round, r.open = nil, nil
	}
	if len(r.round)+len(r.open) == 0 {
		r.begin(f)
	}

	for {
		settled := r.collect(ctx.Err() != nil, f.resumes)
		switch {
		case len(r.round) > 0:
			next := r.round[0]
			r.round = r.round[1:]
			return next
		case len(r.open) == 0:
			if r.empty { // no name of the round has an address
				r.size = 1
			}
			return target{server: r.servers[0], address: r.servers[0], err: r.err}
		}
		select {
		case <-settled:
		case <-ctx.Done():
		}
	}
}

// begin begins a round, and the lookups of its servers.
func (r *route) begin(f search) {
	r.began, r.size, r.empty, r.err = time.Now(), 0, true, nil
	age := time.Duration(0)
	if f.at == StakePlace && f.resumes {
		age = lookupPause
	}
	servers := r.servers
	if f.slow {
		servers = servers[:1]
		r.servers = slices.Concat(r.servers[1:], servers)
	}

	for _, server := range servers {
		r.open = append(r.open, r.ensemble.lookUp(server, age))
	}
}

// collect takes the targets of lookups that have ended. It returns a channel that is closed when
// another lookup ends. If it's late, collect uses former addresses for a session that is resumed,
// and drops the other lookups from this round (they go on for later rounds).
func (r *route) collect(late, resumes bool) (settled <-chan struct{}) {
	a := &r.ensemble.addresses
	a.mu.Lock()
	defer a.mu.Unlock()
	var open []*lookup

	for _, l := range r.open {
		switch {
		case !l.ended.IsZero() && l.err != nil:
			r.err = fmt.Errorf("%s: %w", l.server, l.err)
		case !l.ended.IsZero():
		case !late:
			open = append(open, l)
			continue
		default:
			r.err = fmt.Errorf("%s: not resolved for %v", l.server, time.Since(l.began).Round(time.Millisecond))
		}
		found := l.targets(r.began, resumes)
		r.round = append(r.round, found...)
		r.size += max(len(found), 1)
		r.empty = r.empty && len(found) == 0
	}

	r.open = open
	return a.settled
}

// len returns how many addresses a round has.
func (r *route) len() int { return max(r.size+len(r.open), 1) }

func shuffled(servers []string) []string {
	servers = slices.Clone(servers)
	rand.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	return servers
}
