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
)

// A ConnectOption configures the sessions of a client. Give it to [Connect]. Every [Option] is one,
// too.
type ConnectOption interface{ applyConnect(*Client) error }

// An Option configures what is done in the sessions. Give it to [Connect] or [Client.With].
type Option interface {
	ConnectOption
	apply(*Client) error
}

type connectOption func(*Client) error

func (o connectOption) applyConnect(c *Client) error { return o(c) }

type option func(*Client) error

func (o option) applyConnect(c *Client) error { return o(c) }
func (o option) apply(c *Client) error        { return o(c) }

// WithSessionTimeout asks for this session timeout, which must be at least one millisecond. The
// default is ten seconds. The server clamps the timeout to its own limits, which are 2 and 20 of
// its ticks by default. [Session.Timeout] returns the timeout that it has granted.
//
// To resume a session in time, dialling and the handshake may take a sixth of the timeout each. If
// a round trip to the servers takes longer, no session outlives its connection. For a timeout of
// two seconds, that limit is 333 ms.
func WithSessionTimeout(d time.Duration) ConnectOption {
	return connectOption(func(c *Client) error {
		if d < time.Millisecond || d.Milliseconds() > math.MaxInt32 {
			return fmt.Errorf("session timeout %v out of range", d)
		}
		c.timeout = d
		return nil
	})
}

// WithDialer makes connections with d. For TLS, see [WithTLS]. d is called from goroutines of the
// client, with one server of the connect string at a time. It should return within the timeout that
// it is given. [Client.Close] does not wait for a call that is under way.
//
// d gets the address as it stands in the connect string, with the port, because certificates are
// issued for names. If a name has several addresses, d chooses one. It should not choose the same
// one each time, as a member that accepts connections need not serve. Without a dialer, the client
// tries every address of every name.
func WithDialer(d zk.Dialer) ConnectOption {
	return connectOption(func(c *Client) error {
		if d == nil {
			return errors.New("nil dialer")
		}
		c.lookup = nil
		c.dial = func(ctx context.Context, network, address string, timeout time.Duration) (net.Conn, error) {
			return dialWith(ctx, d, network, address, timeout)
		}
		return nil
	})
}

// WithStateListener calls f for every change of state, one call at a time and in order, from a
// goroutine of the client's own. f may block, and may call the client, [Client.Close] included.
// WithStateListener may be given several times.
//
// If f blocks until 1,000 calls are due, connections that came and went are left out from then on.
// f is still called for every loss, and for the state in the end.
func WithStateListener(f func(State)) ConnectOption {
	return connectOption(func(c *Client) error {
		if f == nil {
			return errors.New("nil state listener")
		}
		c.listeners = append(c.listeners, f)
		return nil
	})
}

// WithBackOff paces the attempts at an operation that has to be repeated. newBackOff is called for
// each such operation. The default back-off grows from 20 milliseconds to two seconds, is jittered,
// and never stops: the operation ends with its ctx.
//
// When a back-off stops, the operation returns its last error. The clean-up goes on in the
// background, at the default pace, until nothing of the operation is left or the session is over.
func WithBackOff(newBackOff func() backoff.BackOff) Option {
	return option(func(c *Client) error {
		if newBackOff == nil {
			return errors.New("nil back-off")
		}
		c.newBackOff = newBackOff
		return nil
	})
}

func defaultBackOff() backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0),
	)
}

// WithLogger logs failures, and what the client does about them, to l. By default the client logs
// nothing.
func WithLogger(l *slog.Logger) Option {
	return option(func(c *Client) error {
		if l == nil {
			return errors.New("nil logger")
		}
		c.log = l
		return nil
	})
}

// WithObserver calls o for events, such as acquired and lost. See [Observer] and [EventKind].
func WithObserver(o Observer) Option {
	return option(func(c *Client) error {
		if o == nil {
			return errors.New("nil observer")
		}
		c.observer = o
		return nil
	})
}
