package session

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
)

// A Setup is the configuration of a client, with facts that it has found out about its servers.
// Its exported fields must be set before the first session.
type Setup struct {
	*conn.Ensemble
	Chroot   string
	Existing bool            // the chroot must exist
	Resolve  conn.LookupFunc // instead of Lookup, or nil

	NoContainers atomic.Bool              // the servers have said that they know no containers
	ownACL       atomic.Pointer[[]zk.ACL] // grants everything to the identities of the credentials; nil without any
}

// NoChroot returns the error for a chroot that must exist and doesn't.
func (s *Setup) NoChroot() error {
	return fmt.Errorf("%w: the chroot %s, see WithExistingChroot", zk.ErrNoNode, s.Chroot)
}

// Identities returns the schemes and user names of the credentials, without secrets.
func (s *Setup) Identities() string {
	if len(s.Credentials) == 0 {
		return "world:anyone"
	}
	all := make([]string, len(s.Credentials))
	for i, a := range s.Credentials {
		all[i] = a.String()
	}
	return strings.Join(all, ", ")
}
