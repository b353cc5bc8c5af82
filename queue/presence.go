package queue

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A gate is a lock that is held during requests.
type gate chan struct{}

func newGate() gate  { return make(gate, 1) }
func (g gate) take() { g <- struct{}{} }
func (g gate) give() { <-g }

// A presence is an ephemeral node of a session that is there while a batcher works, and for a moment
// after. A receipt uses it. Its name is never used again.
//
// The presence of a consumer is also there while the session has claims, which are in a directory
// with the name of the presence.
type presence struct {
	*site
	dir      string // of the node, below the queue's path
	consumes bool   // it is a consumer's

	lock gate // protects what follows, also while nodes are created or deleted
	name string
	made bool // the directory of the claims
	idle *time.Timer
}

// idlePresence is how long a presence stays without use. It costs the server a hundred bytes.
const idlePresence = time.Second

// use makes sure that the node is there until rest is called. It returns its path, without the chroot.
func (p *presence) use(life context.Context, s *recipe.Session) (node string, err error) {
	p.lock.take()
	defer p.lock.give()
	if p.idle != nil {
		p.idle.Stop()
		p.idle = nil
	}
	for p.name == "" {
		name := s.NewOwner().String()
		err := s.Create(life, p.path+p.dir+"/"+name, nil, zk.FlagEphemeral)
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists): // by an attempt whose answer was lost
			p.name, p.made = name, false
		case !errors.Is(err, zk.ErrNoNode):
			return "", err
		default:
			if err := p.ensure(life, s, p.dir); err != nil {
				return "", err
			}
		}
	}
	node = p.path + p.dir + "/" + p.name
	if p.consumes && !p.made {
		if err := p.ensure(life, s, heldDir(node)); err != nil {
			return "", err
		}
		p.made = true
	}
	return node, nil
}

// heldDir returns the directory of a consumer's claims, below the queue's path.
func heldDir(presence string) string { return heldNode + "/" + path.Base(presence) }

// mend makes use create the directory of the claims again, which a server may have reaped.
func (p *presence) mend() {
	p.lock.take()
	defer p.lock.give()
	p.made = false
}

// rest lets the node be deleted once it was not used for a while. A node that could not be deleted,
// for want of a permission, is used again.
func (p *presence) rest() {
	p.lock.take()
	defer p.lock.give()
	if p.name == "" || p.idle != nil {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(idlePresence, func() {
		p.session.Go(func(life context.Context, s *recipe.Session) {
			p.lock.take()
			defer p.lock.give()
			switch {
			case p.idle != timer: // it is in use again
			case p.consumes && p.claims.Load() > 0:
				timer.Reset(idlePresence)
			default:
				if p.idle = nil; p.end(life, s, p.name) == nil {
					p.name = ""
				}
			}
		})
	})
	p.idle = timer
}

// discard gives up the node, as it is of no use any more.
func (p *presence) discard() {
	p.lock.take()
	defer p.lock.give()
	if old := p.name; old != "" {
		p.name = ""
		p.session.Go(func(life context.Context, s *recipe.Session) { p.end(life, s, old) })
	}
}

// end deletes the node, and the directory of the claims before.
func (p *presence) end(life context.Context, s *recipe.Session, name string) error {
	if p.consumes {
		if err := p.deleteNode(life, s, heldDir(name), -1); err != nil {
			return err
		}
	}
	return p.deleteNode(life, s, p.dir+"/"+name, -1)
}
