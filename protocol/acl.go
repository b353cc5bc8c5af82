package protocol

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/session"
)

// WithACL creates all nodes with this ACL, which must not be empty.
//
// Without it and [WithACLFor], new nodes of a client that has credentials of [WithAuth] grant all
// permissions to their identities, and none to others. Those of a client without one grant all
// permissions to world:anyone, as [zk.WorldACL] of [zk.PermAll] does.
//
// So WithACL(zk.WorldACL(zk.PermAll)) opens the nodes of a client that has a credential. The
// following lets others read them, which Contenders, List and zkr ps need:
//
//	protocol.WithACL(append(zk.DigestACL(zk.PermAll, "alice", "secret"), zk.WorldACL(zk.PermRead)...))
//
// [zk.AuthACL] stands for every identity of the connection. Beside a credential there may be more of
// them than you think: everybody who presents the same client certificate has that one, too.
//
// The ACL of a node does not change when the node exists already. The server evaluates it for each
// request: an identity that may create children of a recipe's path may enter its line.
func WithACL(acl []zk.ACL) Option {
	return option(func(_ *Client, v *session.View) error {
		if len(acl) == 0 {
			return errors.New("empty ACL")
		}
		v.ACLFor, v.AnyACL = func(string) []zk.ACL { return acl }, true
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
// If it panics, the call that needs the ACL returns an error.
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
