package line

import (
	"sync"

	"github.com/go-zookeeper/zk"
)

// A parent is what is known of the data of a line's own node: what a line of its kind has there,
// which is nothing unless it has a rule, and at which version. A transaction may then set it to
// that again, which changes nothing, for the sake of the answer: the Stat says how many children
// there are. Data that others have put there is never replaced.
//
// Versions begin anew when the node is deleted and created again, perhaps with data. So a version
// is used for the next contender only if the line has set it itself. The first one is set by a
// release, in whose transaction the released node proves that the line's node is the one that was
// looked at. One case is left: data that another client has set exactly as often as the line had,
// on a node that was created again since the last release, is replaced. It is safe for concurrent
// use.
type parent struct {
	mu     sync.Mutex // protects what follows
	seen   int64      // when the data were set, by the node's mzxid
	now    known
	closed bool // we may not set it
}

// known is what is known of the data.
type known struct {
	version int32
	data    []byte // at this version; nil if they are not known, or there are none
	fit     bool   // the data at this version are known, and may be set again
	own     bool   // the line has set this version, or else it must be sure to be that of the same node
	quiet   bool   // no other client has set any lately, or has been in line
	kept    bool   // the line's node has its keeper
}

// likely reports whether setting the data again is likely to succeed.
func (k known) likely() bool { return k.fit && k.quiet }

// alone reports whether the node with this Stat has at most one contender.
func alone(stat *zk.Stat, kept bool) bool {
	return stat.NumChildren <= 1 || kept && stat.NumChildren == 2
}

// look takes note of a listing, with the Stat of the line's node. It returns the data if they are
// known.
func (p *parent) look(stat *zk.Stat, empty, kept bool) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case stat.Mzxid < p.seen:
		return nil
	case stat.Mzxid == p.seen:
		p.now.kept, p.now.quiet = kept, p.now.fit && alone(stat, kept)
	default:
		p.note(stat, known{fit: empty, kept: kept})
	}
	return p.now.data
}

// read takes note of the line's rule, which the line obeys or not.
func (p *parent) read(stat *zk.Stat, data []byte, obeyed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if stat.Mzxid >= p.seen {
		kept := p.now.kept
		p.note(stat, known{data: data, fit: obeyed, kept: kept, quiet: alone(stat, kept)})
	}
}

// set takes note of what a transaction of ours has set, or of a node that it has created.
func (p *parent) set(stat *zk.Stat, data []byte, kept bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if stat.Mzxid >= p.seen {
		p.note(stat, known{data: data, fit: true, own: true, kept: kept, quiet: alone(stat, kept)})
	}
}

// note is for callers that hold mu.
func (p *parent) note(stat *zk.Stat, now known) {
	p.seen, p.now = stat.Mzxid, now
	p.now.version = stat.Version
}

func (p *parent) known() known {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.now
	k.fit = k.fit && !p.closed
	return k
}

// forget is for when the node is gone, or has been set by others.
func (p *parent) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(&zk.Stat{}, known{})
}

// close is for when we may not set it.
func (p *parent) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

// likely reports whether a new contender is likely to be alone in line, and fast.
func (p *parent) likely() bool {
	k := p.known()
	return k.own && k.likely()
}
