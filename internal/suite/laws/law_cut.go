package laws

import (
	"testing"
	"time"
)

// Cut breaks the connection before each packet of a call passes. The server then never executes a
// request, and an answer is lost. The client comes back at once (at the same server or at a server
// that lags by 300 ms), or its session expires meanwhile.
func Cut(t *testing.T, p *Player) {
	p.law(t, law{name: "cut", title: "What comes of a call during which the connection breaks, or the session expires.", cells: func(sc *scene) {
		for _, p := range sc.calm.packets {
			sc.broken("cut before", p, setting{}, cut, sc.judged)
			sc.broken("expired before", p, setting{}, expire, sc.judged)
			if sc.connect == "" {
				sc.broken("cut, and moved to a server that lags, before", p, setting{}, func(s *Stage, operations []string) {
					behind := s.Server.Embedded().Follower()
					behind.Lag(300 * time.Millisecond)
					s.Link.Move(behind)
					cut(s, operations)
				}, sc.judged)
			}
		}
	}})
}

// cut breaks the connection for a moment.
func cut(s *Stage, _ []string) {
	s.Link.Cut()
	s.Link.Heal()
}

// expire ends the client's session, which the client finds out at once.
func expire(s *Stage, operations []string) {
	s.expire()
	cut(s, operations)
}

// expire ends the client's session.
func (s *Stage) expire() {
	s.expired.Store(true)
	if session, err := s.Client.Session(s.ctx); err == nil { // the cell may have ended meanwhile
		s.Server.ExpireSession(session.ID())
	}
}
