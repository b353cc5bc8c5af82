package protocol

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/session"
)

// WithACL creates all nodes with this ACL. An empty ACL is an error. The ACL of a node that exists
// already does not change.
//
// By default, the new nodes of a client with a credential of [WithAuth] grant all permissions to
// its identities and none to others. New nodes of a client without a credential are open to all. So
// WithACL(zk.WorldACL(zk.PermAll)) opens the nodes of a client with a credential. The following ACL
// lets others read them (which Contenders, List and zkr ps need):
//
//	protocol.WithACL(append(zk.DigestACL(zk.PermAll, "alice", "secret"), zk.WorldACL(zk.PermRead)...))
//
// [zk.AuthACL] stands for every identity of the connection. That can be more than you think: all
// who present the same client certificate share its identity.
func WithACL(acl []zk.ACL) Option {
	return option(func(_ *Client, v *session.View) error {
		if len(acl) == 0 {
			return errors.New("empty ACL")
		}
		v.ACLFor, v.AnyACL = func(string) []zk.ACL { return acl }, true
		return nil
	})
}

// WithACLFor creates each node with the ACL that f returns for it. If that ACL is empty, the node
// gets the default. So several identities can share a parent:
//
//	protocol.WithACLFor(func(path string) []zk.ACL {
//		if path == "/locks" {
//			return zk.WorldACL(zk.PermRead | zk.PermCreate)
//		}
//		return nil
//	})
//
// f gets the path as given (without the number of a sequential node). For the chroot and the nodes
// above it, f gets "/". f must return at once, and the same for the same path. It must be safe for
// concurrent use. If it panics, ends its goroutine or blocks for a session timeout, the call that
// needs the ACL returns an error.
//
// The last WithACL or WithACLFor counts.
func WithACLFor(f func(path string) []zk.ACL) Option {
	return option(func(_ *Client, v *session.View) error {
		if f == nil {
			return errors.New("nil function for ACLs")
		}
		v.ACLFor, v.AnyACL = f, false
		return nil
	})
}
