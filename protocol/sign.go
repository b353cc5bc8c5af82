package protocol

import (
	"sync"

	"github.com/go-zookeeper/zk"
)

// A sign is what is known of the data of a line's own node: whether there is none, and at which version. Then it may be
// set to none, which changes nothing, for the sake of the answer. What others have put there is never replaced. It is
// safe for concurrent use.
type sign struct {
	mu      sync.Mutex // protects what follows
	seen    int64      // when, by the node's mzxid
	version int32
	empty   bool // it is known that there is no data at this version
	quiet   bool // nobody else has set any lately, or has been in line
	closed  bool // we may not set it
}

// look takes note of the stat of the line's node.
func (s *sign) look(stat *zk.Stat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed || stat.Mzxid < s.seen:
	case stat.Mzxid == s.seen:
		s.quiet = s.empty && stat.NumChildren <= 1
	default:
		s.note(stat, stat.DataLength == 0)
	}
}

// set takes note of what a transaction of ours has set, or of a node that it has created.
func (s *sign) set(stat *zk.Stat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && stat.Mzxid >= s.seen {
		s.note(stat, true)
		s.quiet = stat.NumChildren <= 1
	}
}

// note is for those who hold mu.
func (s *sign) note(stat *zk.Stat, empty bool) {
	s.seen, s.version, s.empty, s.quiet = stat.Mzxid, stat.Version, empty, false
}

// known returns the version that may be set, if there is one, and whether that is likely to succeed.
func (s *sign) known() (version int32, empty, likely bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version, s.empty, s.empty && s.quiet
}

// forget is for when the node is gone, or has been set by others.
func (s *sign) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(&zk.Stat{}, false)
}

// close is for when we may not set it.
func (s *sign) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.empty = true, false
}
