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

// A ConnectOption shapes the sessions of a client; give it to [Connect]. Every [Option] is one too.
type ConnectOption interface{ applyConnect(*Client) error }

// An Option shapes what is done under the sessions; give it to [Connect] or [Client.With].
type Option interface {
	ConnectOption
	apply(*Client) error
}

type connectOption func(*Client) error

func (o connectOption) applyConnect(c *Client) error { return o(c) }

type option func(*Client) error

func (o option) applyConnect(c *Client) error { return o(c) }
func (o option) apply(c *Client) error        { return o(c) }

// WithSessionTimeout asks for this session timeout, by default ten seconds. The server clamps it to its own limits,
// by default 2 and 20 of its ticks; what it granted is [Session.Timeout]. It must be at least one millisecond.
//
// To resume a session in time, dialling and the handshake may take a sixth of the timeout each. Where a round
// trip to the servers takes longer than that (333 ms for a timeout of two seconds) no session outlives its connection.
func WithSessionTimeout(d time.Duration) ConnectOption {
	return connectOption(func(c *Client) error {
		if d < time.Millisecond || d.Milliseconds() > math.MaxInt32 {
			return fmt.Errorf("session timeout %v out of range", d)
		}
		c.timeout = d
		return nil
	})
}

// WithDialer makes connections with d, which is where TLS goes. It is called from a goroutine of the client, with
// one server of the connect string at a time, and should return within the timeout that it is given. [Client.Close]
// does not wait for a call that is under way.
//
// The address that d gets is the one in the connect string, a name with its port, as certificates are issued for names.
// If a name has several addresses d chooses among them: it should not choose the same one each time, as a
// member that accepts connections need not serve. Without a dialer every address of every name is tried.
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

// WithAuth adds a credential, such as scheme "digest" with "user:password", which is sent on every connection of
// every session before anything else. It may be given several times.
//
// A credential that the servers refuse when the client connects fails [Connect]. If they refuse it later, a session
// that has a connection goes on trying others until it is lost, and further sessions are asked for
// at intervals of the session timeout. Meanwhile the state is [Lost], the logger gets a warning for each attempt, and the
// error of [Client.Session] says why.
func WithAuth(scheme string, auth []byte) ConnectOption {
	return connectOption(func(c *Client) error {
		if scheme == "" {
			return errors.New("empty auth scheme")
		}
		c.auth = append(c.auth, credential{scheme, auth})
		return nil
	})
}

type credential struct {
	scheme string
	auth   []byte
}

// WithStateListener calls f with every change of state, one call at a time and in order, from a goroutine of its
// own: f may take its time, and may call the client, [Client.Close] included. It may be given several times. If f blocks
// for so long that 1,000 calls are due, it is not told any more of connections that came and went; it still
// hears of every loss that it has not heard of yet, once, and of the state in the end.
func WithStateListener(f func(State)) ConnectOption {
	return connectOption(func(c *Client) error {
		if f == nil {
			return errors.New("nil state listener")
		}
		c.listeners = append(c.listeners, f)
		return nil
	})
}

// WithACL gives the nodes that are created this ACL, by default world:anyone with all permissions.
func WithACL(acl []zk.ACL) Option {
	return option(func(c *Client) error {
		if len(acl) == 0 {
			return errors.New("empty ACL")
		}
		c.acl = acl
		return nil
	})
}

// WithBackOff calls newBackOff for each operation that has to be repeated, to pace it. The default is exponential
// between 20 milliseconds and two seconds, jittered, without an end: an operation ends with its ctx.
//
// Where the back-off ends by itself, the operation returns its last error. That ends the call and not the clean-up:
// the client goes on in the background, at the default pace, until what the call may have left behind is deleted or
// the session is over.
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

// WithLogger writes what the client does about failures to l. By default it is silent.
func WithLogger(l *slog.Logger) Option {
	return option(func(c *Client) error {
		if l == nil {
			return errors.New("nil logger")
		}
		c.log = l
		return nil
	})
}

// WithObserver tells o of waits, holds, losses and retries: see [Observer].
func WithObserver(o Observer) Option {
	return option(func(c *Client) error {
		if o == nil {
			return errors.New("nil observer")
		}
		c.observer = o
		return nil
	})
}
