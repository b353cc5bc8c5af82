package session

import (
	"log/slog"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// A Holder is something that is held in a session.
type Holder interface {
	// Lose ends what is held, and returns the logger that is to be told of that, or nil. It does not
	// block.
	Lose(err error) *slog.Logger

	// Held returns what is held. It does not block.
	Held() Held
}

// A Held says what is held.
type Held struct {
	Recipe, Path string
	Token        int64
	Since        time.Time
	Over         bool // it has ended a moment ago
}

// Lose ends what is held. Then it logs what was, in one message for each logger.
func (s *Session) Lose(err error, holders ...Holder) {
	logs := make(map[*slog.Logger][]Held)
	for _, h := range holders {
		if log := h.Lose(err); log != nil {
			logs[log] = append(logs[log], h.Held())
		}
	}

	session := layout.SessionID(s.ID())
	for log, lost := range logs {
		if len(lost) == 1 {
			log.Warn("lost", "recipe", lost[0].Recipe, "path", lost[0].Path, "session", session, "token", lost[0].Token, "error", err)
			continue
		}
		var paths []string
		for _, h := range lost[:min(len(lost), 5)] {
			paths = append(paths, h.Path)
		}
		log.Warn("lost", "count", len(lost), "paths", strings.Join(paths, ","), "session", session, "error", err)
	}
}

// HeldAt returns what is held at this path, if anything is.
func (s *Session) HeldAt(path string) (_ Held, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h := range s.holders {
		if held := h.Held(); held.Path == path && !held.Over {
			return held, true
		}
	}
	return Held{}, false
}

// holds returns how much is held.
func (s *Session) holds() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.holders)
}
