package protocol

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/go-zookeeper/zk"
)

// passedSuffix makes the name of a node's release marker.
//
// A holder knows that nothing is ahead of it. The transaction in which it releases says so: it first creates the release
// marker and deletes it again, and then deletes the holder's node. No client ever sees the marker, but a waiter that
// watches for its creation hears of that right before it hears of the deletion. Then everything up to that node is gone,
// and for good, as numbers only grow.
//
// Only the release of a node makes its marker. A contender that dies, gives up or is broken leaves none, and no other
// client makes up for that: what a client has read about a node of another contender may be out of date, and a write
// would have others believe it. The watches for the marker are removed instead, which tells no other client anything.
const passedSuffix = "-passed"

// marking makes the watches for a node's release marker fire.
func marking(node string, acl []zk.ACL) []any {
	return []any{
		&zk.CreateRequest{Path: node + passedSuffix, Acl: acl, Flags: zk.FlagEphemeral},
		&zk.DeleteRequest{Path: node + passedSuffix, Version: -1},
	}
}

// passing deletes the node of a holder that has nothing ahead.
func passing(node string, acl []zk.ACL) []any {
	return append(marking(node, acl), &zk.DeleteRequest{Path: node, Version: -1})
}

// passingSize is the room that the operations of passing take, at most.
func passingSize(node string, acl []zk.ACL) int {
	size := 3*(operationOverhead+len(node)) + 2*len(passedSuffix)
	for _, a := range acl {
		size += operationOverhead + len(a.Scheme) + len(a.ID)
	}
	return size
}

// operationOverhead is what an operation, or an entry of an ACL, takes in a transaction at most, without its strings.
const operationOverhead = 32

// pass deletes the node of a holder that has nothing ahead. It returns [zk.ErrNoNode] if another client had deleted it.
// Where the marker cannot be made, because an ACL forbids it or a foreign node has its name, the node alone is deleted.
func (l *Line) pass(ctx context.Context, s *Session, node string) error {
	return s.removeWith(ctx, node, func(c *zk.Conn) error {
		_, err := Multi(c, passing(node, l.client.acl)...)
		return err
	})
}

// removeWith deletes a node with op, which returns [zk.ErrNoNode] if the node is gone, or with [Session.remove] if the
// server refuses op for another reason.
func (s *Session) removeWith(ctx context.Context, node string, op func(*zk.Conn) error) error {
	s.engage()
	defer s.disengage()
	repeated := false
	_, err := Do(ctx, s, func(c *zk.Conn) (struct{}, error) {
		err := op(c)
		if repeated && errors.Is(err, zk.ErrNoNode) {
			err = nil // it was the attempt before
		}
		repeated = repeated || outcomeOf(err) == unknown
		return struct{}{}, err
	})
	if err == nil || errors.Is(err, zk.ErrNoNode) || outcomeOf(err) != definite || s.Err() != nil {
		return err
	}
	return s.remove(ctx, node)
}

// A markerWatch is a watch for the release marker of a node. It is set by a request of our own, so that zk.Conn knows
// nothing of it and does not set it again over the next connection: it ends with the connection over which it was set.
type markerWatch struct {
	over *wire
	set  bool // the server has said so
}

// expect sets the watch for the release marker of a node, if next, which watches the node, has been set over the
// present connection and has not fired. It does not wait for the server.
func (t *watchTable) expect(node string, next *watch) {
	over := t.session.connection()
	if over == nil || !next.certain() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.markers[node]; t.watches[node] != next || t.listing || m != nil && m.over == over {
		return
	}
	m := &markerWatch{over: over}
	if t.markers == nil {
		t.markers = make(map[string]*markerWatch)
	}
	t.markers[node] = m
	t.session.client.spawn(func() {
		over.ask(opExists, node+passedSuffix, []byte{1}, func(code int32) {
			t.mu.Lock()
			defer t.mu.Unlock()
			switch current := t.markers[node] == m; {
			case code != 0 && code != codeNoNode:
				if current {
					delete(t.markers, node) // the server has set no watch
				}
			case current:
				m.set = true
			default: // the node was gone before the watch was set
				t.remove(m, node)
			}
		})
	})
}

// unexpect removes the watch for the release marker of a node that is gone, or whose end would not be heard of. The
// caller holds mu.
func (t *watchTable) unexpect(node string) {
	m := t.markers[node]
	delete(t.markers, node)
	if m != nil && m.set { // or else it is removed once it is set
		t.remove(m, node)
	}
}

// remove has the server forget a watch for a release marker. If the connection ends first, the server has forgotten the
// watch with that. The caller holds mu.
func (t *watchTable) remove(m *markerWatch, node string) {
	const watchesOfData = 2 // which are those for the existence of a node, too
	kind := binary.BigEndian.AppendUint32(nil, watchesOfData)
	t.session.client.spawn(func() {
		m.over.ask(opRemoveWatches, node+passedSuffix, kind, func(code int32) { t.removed(m, code) })
	})
}

// removed notes how the server has answered to a request to remove a watch. Servers before 3.5 know no such request: they
// refuse it, or hang up. A session that has learnt this once expects no release markers any more.
func (t *watchTable) removed(m *markerWatch, code int32) {
	t.mu.Lock()
	refused := false
	switch code {
	case 0, codeNoWatcher: // it had fired
		t.unanswered = nil
	case codeConnectionLoss:
		t.listing = t.listing || t.unanswered != nil && t.unanswered != m.over // two in a row are no accident
		t.unanswered = m.over
	default:
		t.listing, refused = true, true
	}
	t.mu.Unlock()
	if refused {
		m.over.cut(errCannotRemove) // so the watches that are left go with the connection
	}
}

var errCannotRemove = errors.New("the server cannot remove watches")
