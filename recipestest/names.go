package recipestest

import (
	"context"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// Names is a name service, and the network that its addresses belong to. Use it to test servers
// that move, whose names don't resolve, or that other servers replace. At first no name resolves,
// and no address is reachable. It counts lookups and dials.
//
// All methods are safe for concurrent use, also in a testing/synctest bubble.
type Names struct {
	server *Server

	mu      sync.Mutex // protects the fields below
	hosts   map[string][]string
	dialers map[string]zk.Dialer
	lookups int
	dials   map[string]int
}

// Names returns a name service for clients of the server.
func (s *Server) Names() *Names {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faulty = true
	return &Names{
		server: s, hosts: make(map[string][]string), dialers: make(map[string]zk.Dialer), dials: make(map[string]int),
	}
}

// Resolve makes a name resolve to IP addresses from now on. Without addresses, it doesn't resolve.
func (n *Names) Resolve(name string, addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[name] = slices.Clone(addresses)
}

// Give connects an IP address (at every port) to the server that dial reaches. dial is
// [Server.Dial] or [Link.Dial], for example. Open connections stay. With nil the address belongs to
// no server, so dialing it takes the whole timeout and fails.
func (n *Names) Give(address string, dial zk.Dialer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dialers[address] = dial
}

// Client is [Server.Client] for a connect string that names servers.
func (n *Names) Client(tb testing.TB, connectString string, opts ...protocol.ConnectOption) *protocol.Client {
	tb.Helper()
	opts = append([]protocol.ConnectOption{protocol.WithResolver(n)}, opts...)
	return n.server.client(tb, connectString, n.Dial, opts)
}

// LookupHost resolves a name. It serves protocol.WithResolver.
func (n *Names) LookupHost(_ context.Context, host string) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lookups++
	if addresses := n.hosts[host]; len(addresses) > 0 {
		return slices.Clone(addresses), nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// Dial connects to the server at an address. It is a zk.Dialer.
func (n *Names) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.dials[host]++
	dial := n.dialers[host]
	n.mu.Unlock()
	if dial != nil {
		return dial(network, address, timeout)
	}

	// An address without a host doesn't even refuse.
	time.Sleep(timeout)
	return nil, &net.OpError{Op: "dial", Net: network, Addr: linkAddr{network, address}, Err: os.ErrDeadlineExceeded}
}

// Lookups returns how often a name was looked up so far, successfully or not.
func (n *Names) Lookups() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lookups
}

// Dials returns how often each address was dialed so far.
func (n *Names) Dials() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.dials)
}
