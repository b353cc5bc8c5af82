package protocol

import (
	"errors"

	"github.com/go-zookeeper/zk"
)

// WithACL creates all nodes with this ACL, which must not be empty.
//
// Without it and [WithACLFor], new nodes of a client that has a credential of [WithAuth] grant all
// permissions to that identity, and none to others. Those of a client without one grant all
// permissions to world:anyone. The ACL is [zk.AuthACL] or [zk.WorldACL] of [zk.PermAll].
//
// So WithACL(zk.WorldACL(zk.PermAll)) opens the nodes of a client that has a credential. The
// following lets others read them, which Contenders, List and zkr ps need:
//
//	protocol.WithACL(append(zk.AuthACL(zk.PermAll), zk.WorldACL(zk.PermRead)...))
//
// The ACL of a node does not change when the node exists already. The server evaluates it for each
// request: an identity that may create children of a recipe's path may enter its line.
func WithACL(acl []zk.ACL) Option {
	return option(func(c *Client) error {
		if len(acl) == 0 {
			return errors.New("empty ACL")
		}
		c.aclFor = func(string) []zk.ACL { return acl }
		return nil
	})
}

// WithACLFor creates each node with the ACL that f returns for it, or with the default of [WithACL]
// if that is empty. It is for parents that several identities share:
//
//	protocol.WithACLFor(func(path string) []zk.ACL {
//		if path == "/locks" {
//			return zk.WorldACL(zk.PermRead | zk.PermCreate)
//		}
//		return nil
//	})
//
// f gets the path as users give it, without the chroot. The name of a sequential node has no number
// yet. For the chroot and for what is above it, f gets "/". f is called for each node that is to be
// created, and may be called concurrently. It must return at once, and the same for the same path.
//
// The last WithACL or WithACLFor counts.
func WithACLFor(f func(path string) []zk.ACL) Option {
	return option(func(c *Client) error {
		if f == nil {
			return errors.New("nil function for ACLs")
		}
		c.aclFor = f
		return nil
	})
}

// acl returns the ACL of a node that is to be created. The path has no chroot.
func (c *Client) acl(path string) []zk.ACL {
	if c.aclFor != nil {
		if acl := c.aclFor(path); len(acl) > 0 {
			return acl
		}
	}
	for _, a := range c.auth {
		if a.identifies() {
			return ownACL
		}
	}
	return openACL
}

// The defaults of WithACL are made once, as each call asks for its ACL several times.
var (
	ownACL  = zk.AuthACL(zk.PermAll)
	openACL = zk.WorldACL(zk.PermAll)
)

// ACL returns what a node gets that is created through s: the ACL of the view for this path, which
// has no chroot. The name of a sequential node ends before its number.
func (s *Session) ACL(path string) []zk.ACL { return s.client.acl(path) }

// ACL returns what a node of the recipe gets, as [Session.ACL] does.
func (r *Recipe) ACL(path string) []zk.ACL { return r.client.acl(path) }
