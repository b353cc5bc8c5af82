package conn

import (
	"math/rand/v2"
	"time"
)

// A search says what an attempt to connect is for.
type search struct {
	at      Stake
	resumes bool // a session is resumed, not opened
	slow    bool // many attempts have failed, and nothing can be lost
}

// patience is how long a client with nothing to lose looks for a server as if it had a lock. Most
// outages are shorter.
const patience = 25 * time.Second

// slowPause is the average pause between two attempts after that. An attempt is a lookup, a dial
// and a TLS handshake, so these come to less than one in two seconds (although callers cut two
// pauses a minute short).
const slowPause = 8 * time.Second

const shortestPause = 10 * time.Millisecond

// pauseAfter returns the pause before the next attempt to connect. There's none until every address
// was tried. A lock can be saved within a quarter of the session timeout, so its pauses are a small
// part of that. A place in line can be saved for longer: until the servers serve again and expire
// the session.
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

// PauseAfter returns the pause before another session is opened, if so many sessions in a row ended
// as soon as they had begun.
func PauseAfter(failures int, timeout time.Duration) time.Duration {
	return pauseAfter(failures, 1, timeout, search{})
}

// Sleep blocks for d, or until over is closed. It sets no timer that is due at once, and no other
// code here does: with two such timers in a testing/synctest bubble the race detector of Go before
// 1.27 can crash. (See package recipestest.)
func Sleep(d time.Duration, over <-chan struct{}) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-over:
	}
}
