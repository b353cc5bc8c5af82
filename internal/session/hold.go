package session

import (
	"log/slog"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// A Holder holds a lock, or something like a lock, in a session.
type Holder interface {
	// Lose ends the hold. It returns the logger that gets a warning (or nil), and what was held. It
	// does not block.
	Lose(err error) (*slog.Logger, Held)
}

// A Held describes a hold.
type Held struct {
	Recipe, Path string
	Token        int64
}

// Lose ends the holds, and then logs them, in one message for each logger.
func (s *Session) Lose(err error, holders ...Holder) {
	// Every hold ends before anything is logged: other clients can get the locks at any moment.
	logs := make(map[*slog.Logger][]Held)

	for _, h := range holders {
		if log, held := h.Lose(err); log != nil {
			logs[log] = append(logs[log], held)
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

// holds returns how many holders there are.
func (s *Session) holds() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.holders)
}
