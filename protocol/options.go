package protocol

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/buffer"
	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/session"
)

func init() {
	buffer.Limit = func(bytes int) any {
		return connectOption(func(c *session.Client) error {
			c.Limit, c.Incoming = bytes-4, bytes
			return nil
		})
	}
}

// A ConnectOption configures the sessions of a client. Give it to [Connect]. Every [Option] is also
// a ConnectOption.
type ConnectOption interface{ applyConnect(*Client) error }

// An Option configures the work in the sessions. Give it to [Connect] or [Client.With].
type Option interface {
	ConnectOption
	apply(*Client) error
}

type connectOption func(*session.Client) error

func (o connectOption) applyConnect(c *Client) error { return o(session.Open(c).Client) }

type option func(*Client, *session.View) error

func (o option) applyConnect(c *Client) error { return o(c, &session.Open(c).View) }
func (o option) apply(c *Client) error        { return o(c, &session.Open(c).View) }

// WithSessionTimeout asks for this session timeout, which must be at least one millisecond. The
// default is ten seconds. The server clamps the timeout to its own limits (2 and 20 of its ticks,
// by default). [Session.Timeout] returns the granted timeout.
//
// To resume a session in time, dialling and the handshake can take a sixth of the timeout each (333
// ms for a timeout of two seconds). If a round trip takes longer, no session outlives its
// connection.
func WithSessionTimeout(d time.Duration) ConnectOption {
	return connectOption(func(c *session.Client) error {
		if d < time.Millisecond || d.Milliseconds() > math.MaxInt32 {
			return fmt.Errorf("session timeout %v out of range", d)
		}
		c.Timeout = d
		return nil
	})
}

// WithRequestLimit sends no request of more than this many bytes, and returns [ErrTooLarge]
// instead. A server ends the connection at a request that is larger than its jute.maxbuffer, and
// all users of the session share that connection. The client cannot ask for that limit. The default
// is the servers' default of 1,048,575 bytes. It must be at least 1,024 bytes, and no more than the
// least jute.maxbuffer of the ensemble.
func WithRequestLimit(bytes int) ConnectOption {
	return connectOption(func(c *session.Client) error {
		if bytes < 1024 || bytes > conn.MaxFrame {
			return fmt.Errorf("request limit %d out of range", bytes)
		}
		c.Limit = bytes
		return nil
	})
}

// WithDialer makes connections with d. For TLS, see [WithTLS]. d is called from goroutines of the
// client, with one server of the connect string at a time. It should return within the timeout that
// it is given. [Client.Close] does not wait for a call of d.
//
// d gets the address as in the connect string, with the port, because certificates are issued for
// names. If a name has several addresses, d should choose a different address each time, because a
// member can accept connections and not serve. Without a dialer, the client tries every address of
// every name.
func WithDialer(d zk.Dialer) ConnectOption {
	return connectOption(func(c *session.Client) error {
		if d == nil {
			return errors.New("nil dialer")
		}
		c.Lookup = nil // but see WithResolver
		c.Dial = func(ctx context.Context, network, address string, timeout time.Duration) (net.Conn, error) {
			return conn.DialWith(ctx, d, network, address, timeout)
		}
		return nil
	})
}

// WithResolver resolves the names of the servers with r, as with [net.DefaultResolver] by default.
// If [WithDialer] is given, too, its dialer gets addresses instead of names. r must be safe for
// concurrent use, and return when its ctx ends.
func WithResolver(r interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
}) ConnectOption {
	return connectOption(func(c *session.Client) error {
		if r == nil {
			return errors.New("nil resolver")
		}
		c.Resolve = r.LookupHost
		return nil
	})
}

// WithStateListener calls f for every change of state, one call at a time and in order, from a
// goroutine of the client's own. f may block, and may call the client, [Client.Close] included.
// WithStateListener may be given several times.
//
// If f blocks until 1,000 calls are due, the client leaves out connections that came and went, but
// still calls f for every loss and for the last state. If f panics, the logger gets a warning.
func WithStateListener(f func(State)) ConnectOption {
	return connectOption(func(c *session.Client) error {
		if f == nil {
			return errors.New("nil state listener")
		}
		say := func(message string, args ...any) { c.Root.Log.Warn(message, args...) }
		c.Listen(func(s session.State) { f(State(s)) }, session.CalleeOf(f, "state listener", say))
		return nil
	})
}

// WithBackOff paces the attempts at an operation that must be repeated. newBackOff is called for
// each such operation. The default back-off grows from 20 milliseconds to two seconds, is jittered,
// and never stops: the operation ends with its ctx.
//
// When a back-off stops, the operation returns its last error. The clean-up goes on in the
// background at the default pace, until nothing of the operation is left or the session ends.
func WithBackOff(newBackOff func() backoff.BackOff) Option {
	return option(func(_ *Client, v *session.View) error {
		if newBackOff == nil {
			return errors.New("nil back-off")
		}
		v.NewBackOff = newBackOff
		return nil
	})
}

// WithExistingChroot makes Connect (and later calls) return an error that wraps [zk.ErrNoNode] if
// the chroot does not exist. By default the client creates it, and then a program with a mistyped
// chroot has locks of its own and waits for no other.
func WithExistingChroot() ConnectOption {
	return connectOption(func(c *session.Client) error {
		c.Existing = true
		return nil
	})
}

// WithLogger logs to l. By default warnings and errors go to [slog.Default]. A logger that discards
// everything keeps the client silent. The log has no credentials and no data in it. docs/errors.md
// explains each warning.
//
// Warnings say that a session or its locks were lost, that the servers refuse requests or a
// credential, or that they grant another session timeout. If there has been no connection for a
// second (also during [Connect]), a warning says so, with the time at which locks will be lost. It
// is repeated at intervals that double up to a minute, and an info follows when there is a
// connection again. These go to the logger that was given to Connect, not to a logger of
// [Client.With]. Errors are about nodes that were left behind. Everything else has level debug.
//
// The client calls the logger from a goroutine of its own, so the logger may block. If 1,000
// messages are due, it misses the next, and gets their number when it goes on.
func WithLogger(l *slog.Logger) Option {
	return option(func(c *Client, v *session.View) error {
		if l == nil {
			return errors.New("nil logger")
		}
		v.Log = session.Open(c).Foreign.Queued(l)
		return nil
	})
}

// WithObserver calls o for events (waiting, acquired, lost): see [Observer] and [EventKind]. If
// [Client.With] gives a view an observer, the view's recipes use only that observer.
func WithObserver(o Observer) Option {
	return option(func(c *Client, v *session.View) error {
		if o == nil {
			return errors.New("nil observer")
		}
		c.observer, v.Observed = o, true
		c.observing = session.CalleeOf(o, "observer", func(message string, args ...any) { v.Log.Warn(message, args...) })
		return nil
	})
}
