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

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/session"
)

func init() {
	session.PacketLimit = func(bytes int) any {
		return connectOption(func(c *session.Client) error {
			c.Limit, c.Incoming = bytes-4, bytes
			return nil
		})
	}
}

// A ConnectOption configures the sessions of a client. Give it to [Connect].
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

// WithSessionTimeout asks for a session timeout of at least a millisecond. The default is ten
// seconds. The server clamps the timeout (to 2 to 20 of its ticks by default): see
// [Session.Timeout].
//
// Dialling and the handshake can take a sixth of the timeout each. If a round trip takes longer, no
// session outlives its connection.
func WithSessionTimeout(d time.Duration) ConnectOption {
	return connectOption(func(c *session.Client) error {
		if d < time.Millisecond || d.Milliseconds() > math.MaxInt32 {
			return fmt.Errorf("session timeout %v out of range", d)
		}
		c.Timeout = d
		return nil
	})
}

// WithRequestLimit sets the size in bytes of the largest request. Instead of sending a larger
// request, calls return [ErrTooLarge] (the server would end the connection). The default is
// 1,048,575 bytes (as on servers). The limit must be at least 1,024 bytes and at most the smallest
// jute.maxbuffer of the ensemble.
func WithRequestLimit(bytes int) ConnectOption {
	return connectOption(func(c *session.Client) error {
		if bytes < 1024 || bytes > conn.MaxFrame {
			return fmt.Errorf("request limit %d out of range", bytes)
		}
		c.Limit = bytes
		return nil
	})
}

// WithDialer makes connections with d, which is called from goroutines of the client and should
// return within its timeout. [Client.Close] does not wait for it.
//
// d gets one server of the connect string at a time. If its name has several addresses, d should
// choose a different address each time because a member can accept connections and not serve.
func WithDialer(d zk.Dialer) ConnectOption {
	return connectOption(func(c *session.Client) error {
		if d == nil {
			return errors.New("nil dialer")
		}

		c.Lookup = nil // unless there is a WithResolver
		c.Dial = func(ctx context.Context, network, address string, timeout time.Duration) (net.Conn, error) {
			return conn.DialWith(ctx, d, network, address, timeout)
		}

		return nil
	})
}

// WithResolver resolves the names of the servers with r instead of [net.DefaultResolver]. The
// dialer of [WithDialer] then gets addresses instead of names. r must be safe for concurrent use
// and return when its ctx ends.
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

// WithStateListener calls f for every change of state, one call at a time and in order. f can block
// and can call the client (even [Client.Close]). If a thousand calls are due, the client leaves out
// connections that came and went. It leaves out no loss and never the last state. WithStateListener
// can be given several times.
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

// WithBackOff paces the attempts at an operation that must be repeated. Each operation gets a
// back-off from newBackOff. The default back-off grows from 20 milliseconds to two seconds
// (jittered) and never stops: the operation ends with its ctx.
//
// When a back-off stops, the operation returns its last error. Its clean-up goes on in the
// background.
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
// the chroot does not exist. By default the client creates it. A program with a mistyped chroot
// then has locks of its own.
func WithExistingChroot() ConnectOption {
	return connectOption(func(c *session.Client) error {
		c.Existing = true
		return nil
	})
}

// WithLogger logs to l. By default warnings and errors go to [slog.Default]. The log has no
// credentials in it. It has no data either, except the beginning of the data of a contender that
// another has waited for (at level info). docs/errors.md explains each warning.
//
// If there has been no connection for a second (also during [Connect]), a warning says when locks
// will be lost. It is repeated at growing intervals. These warnings go to the logger that was given
// to Connect and not to a logger of [Client.With].
//
// l may block. If it is a thousand messages behind, it misses the next messages.
func WithLogger(l *slog.Logger) Option {
	return option(func(c *Client, v *session.View) error {
		if l == nil {
			return errors.New("nil logger")
		}
		v.Log = session.Open(c).Foreign.Queued(l)
		return nil
	})
}

// WithObserver calls o for events. If [Client.With] gives a view an observer, the view's recipes
// use only that observer. There is one observer at a time: of two WithObserver, the later one
// counts. For metrics and a log, let your Observe call both.
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
