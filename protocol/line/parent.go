package line

import (
	"sync"

	"github.com/go-zookeeper/zk"
)

// A parent remembers the data of a line's own node (which is empty unless the line has a rule) and
// its version. A transaction can then set the same data again. That changes nothing, but the answer
// has a Stat with the number of children. Data that others have set is never replaced.
//
// When the node is deleted and created again (perhaps with data), versions begin anew. So the next
// contender uses a version only if the line has set it. A release sets the first version: the
// released node proves that the line's node is the node that was listed.
//
// One case is left. If the node was created again since the last release and another client has set
// its data exactly as often as the line had, that data is replaced. A parent is safe for concurrent
// use.
type parent struct {
	mu     sync.Mutex // protects the fields below
	seen   int64      // the node's mzxid, which says when the data was set
	now    known
	closed bool // the client may not set the data in a contender's transaction, or has no room there
}

// known describes the data at a version.
type known struct {
	version int32
	data    []byte // nil if it isn't known or is empty
	fit     bool   // the data is known, and can be set again
	own     bool   // the line has set this version (another version may be another node's)
	quiet   bool   // no other client has set the data lately, or was in line
	kept    bool   // the line's node has its keeper
}

// likely reports whether setting the data again is likely to succeed.
func (k known) likely() bool { return k.fit && k.quiet }

// alone reports whether the node with this Stat has at most one contender.
func alone(stat *zk.Stat, kept bool) bool {
	return stat.NumChildren <= 1 || kept && stat.NumChildren == 2
}

// look notes a listing, with the Stat of the line's node. It returns the data, or nil if that isn't
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

// read notes the line's rule. obeyed is whether the line can obey it.
func (p *parent) read(stat *zk.Stat, data []byte, obeyed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if stat.Mzxid >= p.seen {
		kept := p.now.kept
		p.note(stat, known{data: data, fit: obeyed, kept: kept, quiet: alone(stat, kept)})
	}
}

// set notes the data that a transaction of ours has set, or a node that it has created.
func (p *parent) set(stat *zk.Stat, data []byte, kept bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if stat.Mzxid >= p.seen {
		p.note(stat, known{data: data, fit: true, own: true, kept: kept, quiet: alone(stat, kept)})
	}
}

// note replaces now. The caller holds mu.
func (p *parent) note(stat *zk.Stat, now known) {
	p.seen, p.now = stat.Mzxid, now
	p.now.version = stat.Version
}

// known returns now. Its fit is false if the client can't set the data.
func (p *parent) known() known {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.now
	k.fit = k.fit && !p.closed
	return k
}

// forget forgets the data, because the node is gone or another client has set it.
func (p *parent) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(&zk.Stat{}, known{})
}

// close notes that the client can't set the data in a contender's transaction.
func (p *parent) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

// likely reports whether a new contender is likely to be alone in line (and fast).
func (p *parent) likely() bool {
	k := p.known()
	return k.own && k.likely()
}
