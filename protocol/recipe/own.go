package recipe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// An OwnNode says what [Session.CreateOwn] creates: an ephemeral sequential node whose name begins
// with Prefix, which no other contender uses. [Session.NewOwner] makes one.
type OwnNode struct {
	Dir    string // the node above it, without the chroot
	Prefix string // of its name, before the sequence number: an [Owner], a hyphen, and the recipe's own word
	Data   []byte

	// Create makes one attempt to create it, given the absolute path without the number, and
	// returns the absolute path with the number. It is for recipes that create the node in a
	// transaction. The default is a plain create of Data.
	Create func(c *zk.Conn, prefix string) (node string, err error)

	// Missing is called when Create has returned [zk.ErrNoNode], and must create all that Create
	// needs. The default is [Session.EnsurePath] of Dir. Create is called again then. If that was
	// not enough, further attempts are paced.
	Missing func(ctx context.Context, s *Session) error
}

// An Own is a node that [Session.CreateOwn] has created. It is not safe for concurrent use.
type Own struct {
	session *Session
	dir     string // absolute
	prefix  string
	node    string // absolute
	sole    bool
	czxid   atomic.Int64 // of the latest answer to a create; valid while sole
}

// CreateOwn creates a node exactly once, whatever becomes of the connection, and knows it again: if
// an answer was lost, it looks behind a [Session.Fence] for what the attempt may have left. It creates what is
// missing above the node.
//
// CreateOwn blocks until the node is there, ctx ends or s is over. If ctx ends first, it returns
// ctx's error, and what was created is deleted in the background. It returns
// [protocol.ErrSequenceExhausted], and leaves no node, when the numbers are about to run out. Other
// errors are those of [DoOnce]. It is safe for concurrent use. In work of [Detach] it creates
// nothing once the caller has stopped waiting, but returns a node that was created before. Only if
// it has just created Dir, it creates the node, too: no server deletes a container that never had a
// child.
func (s *Session) CreateOwn(ctx context.Context, n OwnNode) (*Own, error) {
	if strings.Contains(n.Prefix, "/") {
		return nil, fmt.Errorf("%w: the prefix %q has a slash", zk.ErrBadArguments, n.Prefix)
	}
	return Detach(ctx, s, func(ctx context.Context, s *Session) (*Own, error) {
		return s.createOwn(ctx, n)
	}, func(late *Own) { late.delete(s.bound.Life, s.Background()) })
}

func (s *Session) createOwn(ctx context.Context, n OwnNode) (*Own, error) {
	defer s.KeepAlive()()
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
	made := false // the directory, which no server deletes before it has had a child
	var pause backoff.BackOff
	for {
		node, err := DoOnce(ctx, s, func(c *zk.Conn) (string, error) {
			if err := s.Abandoned(); err != nil && !made {
				return "", err
			}
			return create(c, path)
		}, func(ctx context.Context) (string, bool, error) { return o.settle(ctx, s) })
		switch {
		case err == nil:
			o.node = node
			if err := o.checkSequence(ctx, s); err != nil {
				return nil, err
			}
			return o, nil
		case errors.Is(err, zk.ErrNoNode):
			if err := s.Abandoned(); err != nil {
				return nil, err
			}
			if made {
				if pause == nil {
					pause = session.DefaultBackOff()
				}
				if failed := s.bound.Pause(ctx, s.Done(), pause.NextBackOff(), err); failed != nil {
					return nil, failed
				}
			}
			if err := missing(ctx, s); err != nil {
				return nil, err
			}
			made = true
		default:
			return nil, err
		}
	}
}

// settle looks for what an attempt may have left until there is an answer: a node that may be there
// must not be left there.
func (o *Own) settle(ctx context.Context, s *Session) (node string, found bool, err error) {
	o.sole = false
	err = s.bound.Insist(ctx, o.dir, func() error {
		children, _, err := s.bound.Children(ctx, o.dir)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		} else if err != nil {
			return err
		}
		if found = o.Among(children); found {
			s.bound.Found(o.dir+"/"+o.prefix, o.node)
		}
		return nil
	})
	return o.Path(), found, err
}

// Among reports whether the node is one of the children of its Dir, which the caller has just
// listed. If there is more than one of the same contender, because an attempt to create one was
// hidden by a server that lags, the lowest becomes the node, and the others are deleted in the
// background.
func (o *Own) Among(children []string) bool {
	lowest, found := int32(0), false
	name := ""
	for _, child := range children {
		number, ours := strings.CutPrefix(child, o.prefix)
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

// Path returns the node's absolute path, for what is given to [DoOnce]. The methods of [Session]
// and [Recipe.NewGrant] take paths without the chroot: for these, join Dir and [Own.Name].
func (o *Own) Path() string { return o.node }

// Watch begins to watch the node. It is [Session.Watch] for a node of one's own.
func (o *Own) Watch() *Watch { return o.session.watch(o.node) }

// Sole reports whether it is certain that no other node was created for the contender. It is false
// after an answer was lost: then every listing should go through [Own.Among].
func (o *Own) Sole() bool { return o.sole }

// Czxid returns the number of the transaction that has created the node, or 0 if it is not known:
// after an answer was lost, or if the node was created in a transaction of several operations.
func (o *Own) Czxid() int64 {
	if !o.sole {
		return 0
	}
	return o.czxid.Load()
}

// Withdraw deletes the node. It blocks until that is done, ctx ends, or the session is over. If ctx
// ends first, the deletion goes on in the background.
func (o *Own) Withdraw(ctx context.Context) error {
	_, err := Detach(ctx, o.session.of(ctx), func(ctx context.Context, s *Session) (struct{}, error) {
		o.delete(ctx, s)
		return struct{}{}, nil
	}, nil)
	return err
}

// delete is for work of [Detach], whose caller gets the error: see insist.
func (o *Own) delete(ctx context.Context, s *Session) { s.remove(ctx, o.Path()) }

// checkSequence refuses a node whose number is too close to the counter's end.
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
