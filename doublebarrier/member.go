package doublebarrier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A member is a node in line for a gate, or one that a gate has counted.
type member struct {
	name     string
	owner    string // of the arrival
	n        int    // how many members it expects
	sequence int32
}

// memberPrefix is what the name of the owner's next node begins with: the arrival's owner, how many
// nodes that has had, and the number of members that it expects. The second makes sure that a name
// is never used again: the owner lasts for several sessions, and a container that is created anew
// begins with sequence number 0.
func memberPrefix(owner string, nodes, n int) string {
	return fmt.Sprintf("%s-%d-of-%d-member-", owner, nodes, n)
}

func parseMember(name string) (m member, ok bool) {
	_, rest, isOwned := protocol.ParseOwner(name)
	nodes, rest, _ := strings.Cut(rest, "-of-")
	n, sequence, _ := strings.Cut(rest, "-member-")
	if !isOwned || !isNumber(nodes) || !isNumber(n) {
		return member{}, false
	}

	m.name, m.owner = name, name[:len(name)-len(sequence)-len("-member-")-len(n)-len("-of-")-len(nodes)-len("-")]
	m.n, _ = strconv.Atoi(n) // out of range, it is a number that no other member has
	m.sequence, ok = protocol.ParseSequence(sequence)
	return m, ok
}

func isNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

func isMember(name string) bool {
	_, ok := parseMember(name)
	return ok
}

// line lists the members in order of arrival. There are none if the node above them does not exist.
func (b *Barrier) line(ctx context.Context, s *protocol.Session) (line []member, err error) {
	children, _, err := s.Children(ctx, b.process())
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}

	for _, child := range children {
		if m, ok := parseMember(child); ok {
			line = append(line, m)
		}
	}
	slices.SortFunc(line, func(x, y member) int { return cmp.Compare(x.sequence, y.sequence) })
	return line, err
}

// curators are the names of members of Curator's DistributedDoubleBarrier.
var curators = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// create creates process and what is missing above it. It returns an error if members of Curator's
// barrier are at the path: Curator takes our nodes there for members of its own.
//
// It writes our number to a new record without a listing. Members that expect another one list the
// line when they read that: see agree.
func (b *Barrier) create(ctx context.Context, s *protocol.Session) error {
	created, err := b.createProcess(ctx, s)
	if err != nil {
		return err
	}

	children, _, err := s.Children(ctx, b.recipe.Path())
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if i := slices.IndexFunc(children, curators.MatchString); i >= 0 {
		return fmt.Errorf("%w: %s is a member of Curator's double barrier, which cannot share the path",
			zk.ErrNodeExists, children[i])
	}

	if err == nil && created && !slices.Contains(children, path.Base(b.ready())) {
		_, err = s.Set(ctx, b.process(), record{n: b.n}.data(), 0)
		if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion) {
			err = nil
		}
	}
	return err
}

// createProcess creates process as a container, or as a node that stays if the rounds are kept, and
// what is missing above it. It reports whether it has created process.
func (b *Barrier) createProcess(ctx context.Context, s *protocol.Session) (created bool, err error) {
	if !b.keeps {
		return s.EnsurePath(ctx, b.process())
	}

	if _, err := s.EnsurePath(ctx, b.recipe.Path()); err != nil {
		return false, err
	}
	err = s.Create(ctx, b.process(), nil, 0)
	if errors.Is(err, zk.ErrNodeExists) || errors.Is(err, zk.ErrNoNode) { // join tries again
		return false, nil
	}
	return err == nil, err
}

// join creates the member. It creates no member any more once the caller of Enter has stopped
// waiting: a gate might count that. It deletes process then if that was missing, as no server
// deletes a container that never had a child.
func (a *arrival) join(ctx context.Context) error {
	b, s := a.barrier, a.session
	a.nodes++
	a.seen, a.spared = nil, nil
	missing := false

	own, err := s.CreateOwn(ctx, protocol.OwnNode{
		Dir:    b.process(),
		Prefix: memberPrefix(a.owner, a.nodes, b.n),
		Create: func(c *zk.Conn, prefix string) (string, error) {
			// Note that there may be a node, and only then ask: the caller, once it has stopped
			// waiting, looks at the note.
			before := a.present.Swap(true)
			if err := protocol.Wanted(ctx); err != nil {
				a.present.Store(before)
				return "", err
			}

			return protocol.Create(c, prefix, s.NodeData(b.data), zk.FlagEphemeralSequential, s.ACL(b.process()+"/"+path.Base(prefix)))
		},
		Missing: func(ctx context.Context) error {
			a.present.Store(false)
			missing = true
			return b.create(ctx, s)
		},
	})

	switch {
	case err == nil:
		a.node, a.czxid = own.Name(), own.Czxid()
		m, _ := parseMember(a.node)
		a.sequence = m.sequence
	case s.Err() == nil && !errors.Is(err, protocol.ErrSequenceExhausted):
		a.present.Store(false) // or it was deleted, but may have been counted before that
	}

	if err != nil && missing && !b.keeps {
		s.Multi(ctx, &zk.DeleteRequest{Path: b.process(), Version: -1}) // which is refused if another member has come
	}
	return err
}

// withdraw deletes the member unless it was counted. Then it returns the gate.
func (a *arrival) withdraw(ctx context.Context) (*gate, error) {
	b, s := a.barrier, a.session
	g, err := a.remove(ctx, a.node)
	switch {
	case err == nil && g == nil:
		a.vanished(a.uncounted(*a.seen))
		return nil, nil
	case err != nil && !errors.Is(err, zk.ErrNoNode):
		return nil, err
	}

	// The answer to a first attempt was lost, or another client has deleted the member. It may have
	// been counted before that. A server that has answered a write lags behind nothing before it.
	if g == nil {
		r, err := b.read(ctx, s)
		if err != nil {
			return nil, err
		} else if r.gate.has(a.node) {
			return nil, a.lost()
		}
		a.vanished(a.spares(r))
		return nil, nil
	}

	if stat, err := s.Exists(ctx, b.member(a.node)); err != nil {
		return nil, err
	} else if stat == nil {
		return nil, a.lost()
	}
	return g, nil
}

// remove deletes a member unless a gate has counted it. Then it returns the gate. It begins with
// the record as it was seen, if it was, and ends with that of the moment before the removal. It
// returns [zk.ErrNoNode] if there is no such member.
func (a *arrival) remove(ctx context.Context, name string) (*gate, error) {
	b, s := a.barrier, a.session
	for {
		if a.seen == nil {
			r, err := b.read(ctx, s)
			if err != nil && !errors.Is(err, zk.ErrNodeExists) { // a ready that is not ours has counted no member
				return nil, err
			}
			a.seen = &r
		}
		if a.seen.gate.has(name) {
			return a.seen.gate, nil
		}

		err := a.removeAt(ctx, name, a.seen.version)
		if !errors.Is(err, zk.ErrBadVersion) {
			return nil, err
		}
		a.seen = nil
	}
}

// removeAt deletes a member that was not counted when the record had this version. It returns
// [zk.ErrBadVersion] if the record has changed, and [zk.ErrNoNode] if there is no such member.
func (a *arrival) removeAt(ctx context.Context, name string, version int32) error {
	_, err := a.session.Multi(ctx,
		&zk.DeleteRequest{Path: a.barrier.member(name), Version: -1},
		&zk.CheckVersionRequest{Path: a.barrier.process(), Version: version})
	return err
}

// spares reports whether it is certain that no gate up to this record has counted the node. A gate
// is a change of the record, and stays there until it is over. So the record must be older than the
// node, or at most one change away from another one that spares it.
func (a *arrival) spares(r record) bool {
	switch {
	case r.creation == 0 || r.gate.has(a.node):
		return false
	case r.mzxid < a.czxid:
	case a.spared != nil && r.creation == a.spared.creation && r.version <= a.spared.version+1:
	default:
		return false
	}

	a.spared = &r
	return true
}

// uncounted reports whether it is certain that no gate has counted the node, which was there when
// the record was this, without such a gate. A gate stays as long as its members, unless another
// client replaces the record. Members that join again then have higher numbers: see agree.
func (a *arrival) uncounted(r record) bool {
	kept := r.version == 0 || r.n > 0 && a.sequence >= r.from
	return kept || a.spares(r)
}

// vanished notes that there is no node any more, and whether that is certain not to have been
// counted.
func (a *arrival) vanished(uncounted bool) {
	if !uncounted {
		a.unresolved.Store(true)
	}
	a.node = ""
	a.present.Store(false)
}

// resolve finds out about a member that was lost with its session, and that the server may know
// still. If it was not counted, it must not be counted any more.
func (a *arrival) resolve(ctx context.Context) error {
	if !a.present.Load() {
		return nil
	}

	b, s := a.barrier, a.session
	if err := s.Sync(ctx, b.recipe.Path()); err != nil {
		return err
	}
	line, err := b.line(ctx, s)
	if err != nil {
		return err
	}

	withdrawn := false
	a.seen = nil // it was seen in another session
	for _, m := range line {
		if m.owner != a.owner {
			continue
		}
		g, err := a.remove(ctx, m.name)
		switch {
		case g != nil:
			return a.lost()
		case err == nil:
			withdrawn = withdrawn || m.name == a.node && a.uncounted(*a.seen)
		case !errors.Is(err, zk.ErrNoNode):
			return err
		}
	}

	r, err := b.read(ctx, s)
	if err != nil {
		return err
	}
	if r.gate.hasOwner(a.owner) {
		return a.lost()
	}

	a.vanished(withdrawn)
	return nil
}

// lost notes that the arrival was counted when it had, or has now, no node.
func (a *arrival) lost() error {
	a.counted = true
	return fmt.Errorf("%w: a round has counted this member, and then its session ended, "+
		"or another client deleted the member or the gate", protocol.ErrLost)
}
