package line

import (
	"sync"

	"github.com/go-zookeeper/zk"
)

// A parent is what is known of the data of a line's own node: whether there is none, and at which
// version. A transaction may then set it to none, which changes nothing, for the sake of the
// answer: the Stat says how many children there are. Data that others have put there is never
// replaced.
//
// Versions begin anew when the node is deleted and created again, perhaps with data. So a version
// is used for the next contender only if the line has set it itself. The first one is set by a
// release, in whose transaction the released node proves that the line's node is the one that was
// looked at. One case is left: data that another client has set exactly as often as the line had,
// on a node that was created again since the last release, is replaced. It is safe for concurrent
// use.
type parent struct {
	mu      sync.Mutex // protects what follows
	seen    int64      // when, by the node's mzxid
	version int32
	empty   bool // it is known that there is no data at this version
	own     bool // the line has set this version
	quiet   bool // no other client has set any lately, or has been in line
	closed  bool // we may not set it
}

// look takes note of the stat of the line's node.
func (p *parent) look(stat *zk.Stat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed || stat.Mzxid < p.seen:
	case stat.Mzxid == p.seen:
		p.quiet = p.empty && stat.NumChildren <= 1
	default:
		p.note(stat, stat.DataLength == 0)
	}
}

// set takes note of what a transaction of ours has set, or of a node that it has created.
func (p *parent) set(stat *zk.Stat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed && stat.Mzxid >= p.seen {
		p.note(stat, true)
		p.own, p.quiet = true, stat.NumChildren <= 1
	}
}

// note is for callers that hold mu.
func (p *parent) note(stat *zk.Stat, empty bool) {
	p.seen, p.version, p.empty, p.own, p.quiet = stat.Mzxid, stat.Version, empty, false, false
}

// known returns the version that may be set, if there is one, and whether that is likely to
// succeed. Without own it is a version that was seen only, and must be used while it is sure to be
// that of the same node.
func (p *parent) known() (version int32, empty, own, likely bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.version, p.empty, p.own, p.empty && p.quiet
}

// forget is for when the node is gone, or has been set by others.
func (p *parent) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(&zk.Stat{}, false)
}

// close is for when we may not set it.
func (p *parent) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.empty = true, false
}

// likely reports whether a new contender is likely to be alone in line, and fast.
func (p *parent) likely() bool {
	_, _, own, likely := p.known()
	return own && likely
}
