package conn

import (
	"math/rand/v2"
	"time"
)

// A search is what an attempt to connect looks for.
type search struct {
	at      Stake
	resumes bool // a session, rather than opening one
	slow    bool // many attempts have failed, and nothing is at stake
}

// patience is how long a client whose session has nothing at stake looks for a server as if it had.
// Most outages are shorter.
const patience = 25 * time.Second

// slowPause is the pause between two attempts after that, on average. An attempt is a lookup, a dial
// and a TLS handshake, so there is less than one of these in two seconds, though callers cut two
// pauses a minute short.
const slowPause = 8 * time.Second

const shortestPause = 10 * time.Millisecond

// pauseAfter returns the pause before the next attempt to connect, after this many failed ones. There
// is none until every address was tried. What is held can be saved within a quarter of the session
// timeout, so the pauses are a small part of that. A place in line is kept by whoever is back before
// the servers, once they serve again, expire its session.
func pauseAfter(failures, servers int, timeout time.Duration, f search) time.Duration {
	if f.slow {
		return rand.N(2 * slowPause) // a thousand clients must not come back together
	}
	rounds := failures / servers
	if rounds == 0 || failures%servers != 0 {
		return 0
	}
	most := min(time.Second, timeout/20)
	if f.at == StakePlace {
		most = timeout / 6
	}
	pause := min(shortestPause<<min(rounds-1, 20), max(most, shortestPause))
	return pause/2 + rand.N(pause)
}

// PauseAfter returns the pause before another session is opened, after this many that have ended as
// soon as they had begun.
func PauseAfter(failures int, timeout time.Duration) time.Duration {
	return pauseAfter(failures, 1, timeout, search{})
}

// Sleep blocks for d, or until over is closed. It has no timer that is due at once, and nor has
// anything else here: with two such timers in a testing/synctest bubble the race detector of Go
// before 1.27 may crash. See package recipestest.
func Sleep(d time.Duration, over <-chan struct{}) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-over:
	}
}
