package protocol

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"
)

// A mark is what a holder that leaves writes into the data of the line's node, in the transaction that deletes its own
// node: in this incarnation of the line's node, everybody up to this number is gone. The holder knows, as nobody was
// ahead of it, and numbers only grow. So the statement stays true for ever; an older one that is written over it
// says less, and does no harm. Whoever waited for one that it covers has nobody ahead any more, and needs no listing.
type mark struct {
	incarnation int64 // czxid of the line's node
	sequence    int32
}

// markFormat makes the length of a mark's data tell it from most other data.
const markFormat = "passed %016x " + sequenceFormat

var markSize = int32(len(mark{}.data()))

func (m mark) data() []byte { return fmt.Appendf(nil, markFormat, m.incarnation, m.sequence) }

func parseMark(data []byte) (m mark, ok bool) {
	_, err := fmt.Sscanf(string(data), markFormat, &m.incarnation, &m.sequence)
	return m, err == nil && string(m.data()) == string(data)
}

// A sign is the data of a line's own node, as far as it is known. What others than recipes of ours have put there is
// never replaced. It is safe for concurrent use.
type sign struct {
	mu      sync.Mutex // protects what follows
	seen    int64      // when, by the node's mzxid
	version int32
	born    int64  // its czxid
	ours    bool   // it is known that the data at this version is none, or a mark
	data    []byte // if it is
	quiet   bool   // nobody else has set any lately
	closed  bool   // we may not set it
}

// A signature is what a transaction needs that sets the sign.
type signature struct {
	version int32
	born    int64
	data    []byte
}

// look takes note of the stat of the line's node. It tells whether it would be worth while to read its data, too: only
// after it has stayed as it is from one look to the next, as in a busy line it is soon another one.
func (s *sign) look(stat *zk.Stat) (read bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed || stat.Mzxid < s.seen:
		return false
	case stat.Mzxid == s.seen:
		s.quiet = s.ours
		return !s.ours && stat.DataLength == markSize
	}
	s.note(stat, stat.DataLength == 0, nil)
	return false
}

// read takes note of the data of the line's node, and returns the mark that it is.
func (s *sign) read(data []byte, stat *zk.Stat) (m mark, ok bool) {
	m, ok = parseMark(data)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && stat.Mzxid >= s.seen {
		s.note(stat, ok || len(data) == 0, data)
	}
	return m, ok && m.incarnation == stat.Czxid
}

// set takes note of what a transaction of ours has set, or of a node that it has created.
func (s *sign) set(stat *zk.Stat, data []byte, quiet bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && stat.Mzxid >= s.seen {
		s.note(stat, true, data)
		s.quiet = quiet
	}
}

// note is for those who hold mu.
func (s *sign) note(stat *zk.Stat, ours bool, data []byte) {
	s.seen, s.version, s.born, s.ours, s.data, s.quiet = stat.Mzxid, stat.Version, stat.Czxid, ours, data, false
}

// known returns what it takes to set the sign, if that may be tried, and whether it is likely to succeed.
func (s *sign) known() (sig signature, ours, likely bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return signature{s.version, s.born, s.data}, s.ours, s.ours && s.quiet
}

// forget is for when the node is gone, or has been set by others.
func (s *sign) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(&zk.Stat{}, false, nil)
}

// close is for when we may not set it.
func (s *sign) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.ours = true, false
}

// passed tells whether everybody up to this number is known to be gone.
func (l *Line) passed(ctx context.Context, s *Session, sequence int32) (bool, error) {
	m, err := Do(ctx, s, func(c *zk.Conn) (mark, error) {
		data, stat, err := c.Get(s.Path(l.path))
		if err != nil {
			return mark{}, err
		}
		m, ok := l.sign.read(data, stat)
		if !ok {
			m.sequence = -1
		}
		return m, nil
	})
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	return err == nil && m.sequence >= sequence, err
}

// pass deletes the node of a holder, whose number this is, and leaves a mark if that can be done at once.
func (l *Line) pass(ctx context.Context, s *Session, node string, sequence int32) error {
	sig, ours, _ := l.sign.known()
	if !ours {
		return s.remove(ctx, node)
	}
	s.engage()
	defer s.disengage()
	data, repeated := mark{sig.born, sequence}.data(), false
	_, err := Do(ctx, s, func(c *zk.Conn) (struct{}, error) {
		answers, err := c.Multi(
			&zk.DeleteRequest{Path: node, Version: -1},
			&zk.SetDataRequest{Path: s.Path(l.path), Data: data, Version: sig.version})
		switch {
		case err == nil:
			l.sign.set(answers[1].Stat, data, false)
		case repeated && errors.Is(err, zk.ErrNoNode):
			err = nil // it was the attempt before
		}
		repeated = repeated || outcomeOf(err) == unknown
		return struct{}{}, err
	})
	if errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoAuth) {
		l.sign.forget()
		return s.remove(ctx, node)
	}
	return err
}
