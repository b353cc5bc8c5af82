package conn

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// An Ensemble says how a client reaches its servers. All its sessions use it. Its exported fields
// must be set before the first session.
type Ensemble struct {
	Servers     []string      // hosts and ports
	Timeout     time.Duration // the session timeout to ask for
	Dial        DialFunc
	Lookup      LookupFunc                  // nil if Dial resolves names
	TLS         func() (*tls.Config, error) // for the next handshake; nil without TLS
	Credentials []Credential
	Refusals    map[zkwire.Code]error // our errors for codes that zk.Conn has no values for
	Limit       int                   // the largest request, in bytes
	Incoming    int                   // the largest packet of a server, in bytes; 0: see MaxFrame

	Closing context.Context               // done when the client begins to close
	Work    context.Context               // done when background work must stop
	Spawn   func(f func()) (started bool) // runs f in a goroutine, unless the client is being closed

	addresses addresses
	noMarkers atomic.Bool   // the servers can't remove watches, so no release marker is watched
	hurry     chan struct{} // receives when a caller begins to wait for a connection; has room for one
}

// NewEnsemble returns an ensemble with the defaults.
func NewEnsemble() *Ensemble {
	return &Ensemble{
		Timeout: 10 * time.Second,
		Dial:    dialNet,
		Lookup:  net.DefaultResolver.LookupHost,
		Limit:   DefaultLimit,
		hurry:   make(chan struct{}, 1),
	}
}

// DefaultLimit is the largest request, in bytes, that a server with the default jute.maxbuffer
// accepts.
const DefaultLimit = 1<<20 - 1

// Awaited notes that a caller has begun to wait for a connection.
func (e *Ensemble) Awaited() {
	select {
	case e.hurry <- struct{}{}:
	default:
	}
}

// connect connects to a server, over TLS if there is a configuration for it.
func (e *Ensemble) connect(ctx context.Context, network string, to target, timeout time.Duration) (net.Conn, error) {
	switch {
	case to.err != nil:
		return nil, to.err
	case e.TLS != nil:
		return dialTLS(ctx, e.Dial, e.TLS, network, to, timeout)
	}
	return e.Dial(ctx, network, to.address, timeout)
}
