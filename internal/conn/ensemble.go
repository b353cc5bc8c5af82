package conn

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// An Ensemble is how a client reaches its servers, session after session. Its exported fields are set
// before the first session.
type Ensemble struct {
	Servers     []string      // hosts and ports
	Timeout     time.Duration // the session timeout to ask for
	Dial        DialFunc
	Lookup      LookupFunc                  // nil if Dial resolves names
	TLS         func() (*tls.Config, error) // for the next handshake; nil without TLS
	Credentials []Credential
	Refusals    map[zkwire.Code]error // what errors are called that zk.Conn has no values for
	Limit       int                   // the size of the largest request
	Incoming    int                   // the size of the largest packet of a server; 0: see MaxFrame

	Closing context.Context               // done when the client begins to close
	Work    context.Context               // done when background work has to stop
	Spawn   func(f func()) (started bool) // runs f in a goroutine, unless the client is being closed

	addresses addresses
	noMarkers atomic.Bool   // the servers cannot remove watches: no release marker is watched for
	hurry     chan struct{} // receives when a caller begins to wait for a connection; with room for one
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

// DefaultLimit is the size of the largest request that a server with the default jute.maxbuffer
// accepts.
const DefaultLimit = 1<<20 - 1

// Awaited notes that a caller begins to wait for a connection.
func (e *Ensemble) Awaited() {
	select {
	case e.hurry <- struct{}{}:
	default:
	}
}

// connect makes a connection to a server, over TLS if there is a configuration for that.
func (e *Ensemble) connect(ctx context.Context, network string, to target, timeout time.Duration) (net.Conn, error) {
	switch {
	case to.err != nil:
		return nil, to.err
	case e.TLS != nil:
		return dialTLS(ctx, e.Dial, e.TLS, network, to, timeout)
	}
	return e.Dial(ctx, network, to.address, timeout)
}
