package conn

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/pace"
)

// A target is an address to dial.
type target struct {
	server  string // in the connect string; certificates must be for its host
	address string
	former  bool  // an earlier address of the server: the name wasn't resolved just now
	err     error // why there is no address
}

// A DialFunc connects to an address.
type DialFunc func(ctx context.Context, network, address string, timeout time.Duration) (net.Conn, error)

// A LookupFunc returns the addresses of a host.
type LookupFunc func(ctx context.Context, host string) ([]string, error)

// dialNet dials by default.
func dialNet(ctx context.Context, network, address string, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	return d.DialContext(ctx, network, address)
}

// hungDialer is how much longer than its timeout a user's dialer may take. After that the call is
// left alone, and the next server is tried.
const hungDialer = 5 * time.Second

// DialWith dials with d, which takes no ctx and can hang, panic, or end its goroutine. If ctx ends
// first, DialWith returns its cause and closes the connection that d makes later.
func DialWith(ctx context.Context, d zk.Dialer, network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout+hungDialer, errors.New("dialer has not returned"))
	defer cancel()
	return pace.Call(ctx, "dialer", func() (net.Conn, error) {
		c, err := d(network, address, timeout)
		if err != nil {
			return nil, err
		} else if c == nil {
			return nil, errors.New("dialer returned no connection")
		}
		return aside{c}, nil
	}, func(late net.Conn) { late.Close() })
}

// An aside is a connection whose Close does not block. (Close of a user's connection may block, and
// Close of a TLS connection waits for the network.)
type aside struct{ net.Conn }

func (a aside) Close() error {
	go func() {
		defer func() { recover() }()
		a.Conn.SetDeadline(time.Now()) // ends a Read even if Close blocks
		a.Conn.Close()
	}()
	return nil
}
