package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// Limits bound what a survey reads. Zero values stand for the defaults.
type Limits struct {
	Places     int // how many nodes are listed; defaults to 10,000
	Contenders int // how many of each line, and elements of each queue, are read; defaults to 1,000
}

// Look reads what stands at path and below it. What the ACLs forbid to read is missing, and said.
//
// Look blocks until the server has answered, with a Sync, one listing for each node that has
// children, and one read for each contender. It goes on in the next session if one is lost. Its
// error wraps ctx's, [protocol.ErrClosed] or [zk.ErrInvalidPath], or is the server's own. It is
// safe for concurrent use.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
func Look(ctx context.Context, c *protocol.Client, path string, limits Limits) (*Place, error) {
	return across(ctx, c, path, func(s *protocol.Session) (*Place, error) {
		if err := s.Sync(ctx, path); err != nil {
			return nil, err
		}
		return look(ctx, c, s, path, limits, nil)
	})
}

// across looks in one session after the other, until one has not been lost.
func across(
	ctx context.Context, c *protocol.Client, path string, look func(*protocol.Session) (*Place, error),
) (*Place, error) {
	if err := protocol.ValidatePath(path); err != nil {
		return nil, err
	}
	for {
		s, err := c.Session(ctx)
		var p *Place
		if err == nil {
			p, err = look(s)
			if errors.Is(err, protocol.ErrLost) && !errors.Is(err, protocol.ErrClosed) {
				continue // Session waits for the next one
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return p, nil
	}
}

// look is Look under one session, with what is remembered of that, or with nil.
func look(ctx context.Context, c *protocol.Client, s *protocol.Session, path string, limits Limits, m *memory) (*Place, error) {
	sv := &survey{
		reader:     &reader{s, m, make(chan struct{}, readers)},
		client:     c,
		places:     cmp.Or(limits.Places, 10_000),
		contenders: cmp.Or(limits.Contenders, 1_000),
	}

	return sv.tree(ctx, path)
}

// A survey is one look at a path and what is below.
type survey struct {
	*reader
	client     *protocol.Client
	places     int // that may still be listed
	contenders int // that are read of each place
}

// A listing is a node whose children are known.
type listing struct {
	path     string
	children []string // sorted; those that no recipe has claimed yet
	stat     *zk.Stat // nil if there is no such node
	hidden   bool     // an ACL forbids to list it
}

func (sv *survey) list(ctx context.Context, path string) (l listing, err error) {
	l.path = path
	l.children, l.stat, err = sv.reader.children(ctx, path)
	if errors.Is(err, zk.ErrNoAuth) {
		l.hidden, err = true, nil
	}

	if path == "/" { // the servers' own
		l.children = slices.DeleteFunc(l.children, func(child string) bool { return child == "zookeeper" })
	}
	return l, err
}

// claim removes the children from l that keep says yes to, and returns them.
func (l *listing) claim(keep func(child string) bool) (claimed []string) {
	var rest []string
	for _, child := range l.children {
		if keep(child) {
			claimed = append(claimed, child)
		} else {
			rest = append(rest, child)
		}
	}

	l.children = rest
	return claimed
}

func (l *listing) has(child string) bool { return slices.Contains(l.children, child) }

// recognise says what a node is used for, and claims the children that belong to that.
func (sv *survey) recognise(ctx context.Context, l *listing) (*Place, error) {
	p := &Place{Path: l.path}
	switch {
	case l.stat == nil:
		p.Recipe = Missing
		return p, nil
	case l.hidden:
		p.Recipe = Hidden
	case len(l.children) == 0 && isEphemeral(l.stat):
		p.Recipe = Barrier
		p.note("falls with session %#x", l.stat.EphemeralOwner)
	case len(l.children) == 0 && l.stat.DataLength > 0:
		p.Recipe = Value
	case len(l.children) == 0 && l.stat.Cversion != 0:
		p.Recipe = Empty
	case len(l.children) == 0:
		p.Recipe = Leaf
	}

	p.Since = created(l.stat)
	if p.Recipe != "" {
		return p, nil
	}

	// The first that says yes has it: names that are more telling come first.
	for _, read := range []func(context.Context, *listing, *Place) error{
		sv.queue, sv.doubleBarrier, sv.once, sv.line, sv.leases, sv.foreignMembers,
	} {
		if err := read(ctx, l, p); err != nil || p.Recipe != "" {
			return p, err
		}
	}
	return p, nil
}

// note adds what is worth knowing.
func (p *Place) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}
