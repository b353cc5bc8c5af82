package recipe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/pace"
	"github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// An OwnNode describes the node that [Session.CreateOwn] creates: an ephemeral sequential node. Its
// name begins with Prefix, which no other contender uses. [Session.NewOwner] makes one.
type OwnNode struct {
	Dir    string // the node above it, without the chroot
	Prefix string // the name before the sequence number: an [Owner], a hyphen, and the recipe's own word
	Data   []byte

	// Create makes one attempt to create the node. It gets the absolute path without the number
	// and returns the absolute path with the number. It is for recipes that create the node in a
	// transaction. The default is a plain create with Data.
	Create func(c *zk.Conn, prefix string) (node string, err error)

	// Missing is called after Create has returned [zk.ErrNoNode] and must create everything that
	// Create needs. The default is [Session.EnsurePath] of Dir. After that, Create is called again.
	// Further attempts are paced.
	Missing func(ctx context.Context, s *Session) error
}

// An Own is a node that [Session.CreateOwn] has created. It is not safe for concurrent use.
type Own struct {
	session *Session
	dir     string // absolute
	prefix  string
	node    string // absolute
	sole    bool
	czxid   atomic.Int64 // from the latest answer to a create; valid while sole
}

// CreateOwn creates a node exactly once even if the connection breaks, and knows the node again:
// if an answer is lost, it makes a [Session.Fence] and then looks for the attempt's node. It
// creates missing nodes above it.
//
// CreateOwn blocks until the node exists, ctx ends or s ends. If ctx ends first, it returns ctx's
// error and the node is deleted in the background. When the numbers are about to run out, it
// returns [protocol.ErrSequenceExhausted] and leaves no node. Its other errors are the errors of
// [DoOnce]. It is safe for concurrent use.
//
// In work of [Detach] it creates nothing once the caller has left, but returns a node that was
// created before. The exception: if it has just created Dir, it also creates the node because no
// server deletes a container that never had a child.
func (s *Session) CreateOwn(ctx context.Context, n OwnNode) (*Own, error) {
	if strings.Contains(n.Prefix, "/") {
		return nil, fmt.Errorf("%w: the prefix %q has a slash", zk.ErrBadArguments, n.Prefix)
	}
	return Detach(ctx, s, func(ctx context.Context, s *Session) (*Own, error) {
		return s.createOwn(ctx, n)
	}, func(late *Own) { late.delete(s.bound.Life, s.Background()) })
}

func (s *Session) createOwn(ctx context.Context, n OwnNode) (*Own, error) {
	s.bound.Engage()
	defer s.bound.Disengage()
	o := &Own{session: s.plain(), dir: s.Path(n.Dir), prefix: n.Prefix, sole: true}
	create, missing := n.Create, n.Missing
	if create == nil {
		create = func(c *zk.Conn, prefix string) (string, error) {
			return Create(c, prefix, n.Data, zk.FlagEphemeralSequential, s.bound.View.ACL(n.Dir+"/"+n.Prefix))
		}
	}
	if missing == nil {
		missing = func(ctx context.Context, s *Session) error {
			_, err := s.EnsurePath(ctx, n.Dir)
			return err
		}
	}

	path := o.dir + "/" + o.prefix
	defer s.bound.Conn.NoteCreate(path, &o.czxid)()
	made := false // we have just created the directory
	var pauses pace.Pauses
	for {
		node, err := DoOnce(ctx, s, func(c *zk.Conn) (string, error) {
			if err := s.Abandoned(); err != nil && !made {
				return "", err
			}

			return create(c, path)
		}, func(ctx context.Context) (string, bool, error) { return o.settle(ctx, s) })
		if err == nil {
			o.node = node
			if err := o.checkSequence(ctx, s); err != nil {
				return nil, err
			}

			return o, nil
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return nil, err
		}

		// The directory is missing and can go again before the next attempt.
		if err := s.Abandoned(); err != nil {
			return nil, err
		}
		if made {
			if failed := s.bound.Pause(ctx, s.Done(), pauses.Default(session.DefaultBackOff), err); failed != nil {
				return nil, failed
			}
		}
		if err := missing(ctx, s); err != nil {
			return nil, err
		}

		made = true
	}
}

// settle looks for the node of an attempt until there is an answer: such a node must not stay.
func (o *Own) settle(ctx context.Context, s *Session) (node string, found bool, err error) {
	o.sole = false
	err = s.bound.Insist(ctx, o.dir, func() error {
		children, _, err := s.bound.Children(ctx, o.dir)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		} else if err != nil {
			return err
		}
		found = o.Among(children)
		return nil
	})

	return o.Path(), found, err
}

// Among reports whether the node is among the children of its Dir, which the caller has just
// listed. A contender can have several nodes there because a server that lags can hide the node of
// an attempt. Then the lowest becomes the node, and the others are deleted in the background.
func (o *Own) Among(children []string) bool {
	lowest, found := int32(0), false
	name := ""

	for _, child := range children {
		number, ours := strings.CutPrefix(child, o.prefix)
		// A line can be long, so other contenders' names must cost nothing.
		if !ours {
			continue
		}

		sequence, ok := ParseSequence(number)
		if !ok {
			continue
		}

		extra := child
		if !found || sequence < lowest {
			extra, name, lowest = name, child, sequence
		}
		if found {
			other := &Own{session: o.session, dir: o.dir, node: o.dir + "/" + extra}
			o.session.bound.Spawn(func() { other.delete(o.session.bound.Life, o.session.Background()) })
		}

		found = true
	}
	if found {
		o.node = o.dir + "/" + name
	}

	return found
}

// Name returns the node's name below its Dir.
func (o *Own) Name() string { return o.node[strings.LastIndexByte(o.node, '/')+1:] }

// Sequence returns the number at the end of the node's name.
func (o *Own) Sequence() int32 {
	n, _ := ParseSequence(strings.TrimPrefix(o.Name(), o.prefix))
	return n
}

// Path returns the node's absolute path, for the requests of [DoOnce]. The methods of [Session] and
// [Recipe.NewGrant] take paths without the chroot: join Dir and [Own.Name] for these.
func (o *Own) Path() string { return o.node }

// Watch begins to watch the node, as [Session.Watch] does.
func (o *Own) Watch() *Watch { return o.session.watch(o.node) }

// Sole reports whether the contender certainly has no other node. After a lost answer it is false,
// and then every listing should go through [Own.Among].
func (o *Own) Sole() bool { return o.sole }

// Czxid returns the number of the transaction that created the node. It returns 0 after a lost
// answer, and if the node was created in a transaction of several operations.
func (o *Own) Czxid() int64 {
	if !o.sole {
		return 0
	}
	return o.czxid.Load()
}

// Withdraw deletes the node. It blocks until the node is gone or until ctx or the session ends. If
// ctx ends first, the deletion goes on in the background.
func (o *Own) Withdraw(ctx context.Context) error {
	_, err := Detach(ctx, o.session.of(ctx), func(ctx context.Context, s *Session) (struct{}, error) {
		o.delete(ctx, s)
		return struct{}{}, nil
	}, nil)
	return err
}

// delete must be called in work. The work's caller gets the error (see [session.Bound.Insist]).
func (o *Own) delete(ctx context.Context, s *Session) { s.remove(ctx, o.Path()) }

// checkSequence refuses a node whose number is too close to the end of the counter.
func (o *Own) checkSequence(ctx context.Context, s *Session) error {
	number := strings.TrimPrefix(o.Name(), o.prefix)
	n, ok := ParseSequence(number)
	if ok && n >= 0 && n < MaxSequence {
		return nil
	}
	o.delete(ctx, s)
	return fmt.Errorf("%w: number %s, and %d is the end; delete the path while no client uses it",
		protocol.ErrSequenceExhausted, number, MaxSequence)
}
