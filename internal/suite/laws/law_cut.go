package laws

import (
	"testing"
	"time"
)

// Cut breaks the connection before each packet of a call passes. Before a request that is a request
// that was not executed, before an answer one that was. The client comes back at once, or at a
// server that lags by 300 ms, or its session expires meanwhile.
func Cut(t *testing.T, p *Player) {
	p.law(t, law{name: "cut", title: "What comes of a call during which the connection breaks, or the session expires.", cells: func(sc *scene) {
		cut := func(s *Stage, _ []string) {
			s.Link.Cut()
			s.Link.Heal()
		}
		for _, p := range sc.calm.packets {
			sc.broken("cut before", p, setting{}, cut, sc.judged)
			sc.broken("expired before", p, setting{}, func(s *Stage, operations []string) {
				s.expire()
				cut(s, operations)
			}, sc.judged)
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

// expire ends the client's session.
func (s *Stage) expire() {
	s.expired.Store(true)
	if session, err := s.Client.Session(s.ctx); err == nil { // the cell may have ended meanwhile
		s.Server.ExpireSession(session.ID())
	}
}
