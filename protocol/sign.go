package protocol

import (
	"sync"

	"github.com/go-zookeeper/zk"
)

// A sign is what is known of the data of a line's own node: whether there is none, and at which version. A transaction
// may then set it to none for the sake of the answer, which changes nothing. Data that others have put there is never
// replaced.
//
// Versions begin anew when the node is deleted and made again, perhaps with data. So a version is used for the next
// contender only if the line has set it itself. The first one is set by a release, in whose transaction the released
// node proves that the line's node is the one that was looked at. What is left is data that another client has set exactly
// as often as the line had, on a node made anew since the last release: that is replaced. It is safe for concurrent use.
type sign struct {
	mu      sync.Mutex // protects what follows
	seen    int64      // when, by the node's mzxid
	version int32
	empty   bool // it is known that there is no data at this version
	own     bool // the line has set this version
	quiet   bool // no other client has set any lately, or has been in line
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
		s.own, s.quiet = true, stat.NumChildren <= 1
	}
}

// note is for callers that hold mu.
func (s *sign) note(stat *zk.Stat, empty bool) {
	s.seen, s.version, s.empty, s.own, s.quiet = stat.Mzxid, stat.Version, empty, false, false
}

// known returns the version that may be set, if there is one, and whether that is likely to succeed. Without own it is
// a version that was seen only, and must be used while it is sure to be that of the same node.
func (s *sign) known() (version int32, empty, own, likely bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version, s.empty, s.own, s.empty && s.quiet
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
