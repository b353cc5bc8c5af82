package session

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
)

// A Setup is how a client was set up, and what it has found out about its servers. Its exported
// fields are set before the first session.
type Setup struct {
	*conn.Ensemble
	Chroot   string
	Existing bool            // the chroot must exist
	Resolve  conn.LookupFunc // instead of Lookup, or nil

	NoContainers atomic.Bool              // the servers have said that they know none
	own          atomic.Pointer[[]zk.ACL] // for the identities of the credentials; nil if there is none
}

// NoChroot is the error of a chroot that does not exist and must.
func (s *Setup) NoChroot() error {
	return fmt.Errorf("%w: the chroot %s, see WithExistingChroot", zk.ErrNoNode, s.Chroot)
}

// Identities returns as whom the client acts: schemes and user names, without secrets.
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
