package protocol

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/session"
)

// connectGrace is how long Connect waits for the client to be closed after ctx has ended.
const connectGrace = 50 * time.Millisecond

// Connect opens a session with an ensemble, such as "zk1:2181,zk2:2181,zk3:2181/app". The part from
// the slash on is a chroot: it is put in front of all paths. The default port is 2181.
//
// Connect blocks until there is a session. If ctx ends first, it returns ctx's error with the error
// of the last attempt to connect. For a bad connect string or option it returns an error before any
// I/O. If the servers refuse a credential, the error wraps [zk.ErrAuthFailed]. ctx bounds only
// Connect: the client lives until [Client.Close].
func Connect(ctx context.Context, connectString string, opts ...ConnectOption) (*Client, error) {
	access := session.New()
	access.View.OwnerData = thisProcess()
	c := &Client{clientDoor: session.Behind(access)}

	var err error
	if access.Servers, access.Chroot, err = conn.ParseConnectString(connectString); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}

	for _, o := range opts {
		if o == nil {
			return nil, errors.New("connect: nil option")
		}
		if err := o.applyConnect(c); err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
	}
	if ctx == nil {
		return nil, fmt.Errorf("connect: %w", session.ErrNilContext)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("connect: %w", conn.ContextError(ctx))
	}

	// From here on the observer is called.
	access.Tell = func(o session.Outage) {
		c.Observe(Event{Kind: EventConnecting, Session: o.Session, Count: o.Attempts, Duration: o.Lasted, Err: o.Err})
	}

	access.Retried = func(ctx context.Context, id int64, pause time.Duration, err error) {
		c.Observe(Event{Kind: EventRetried, Context: ctx, Session: id, Duration: pause, Err: err})
	}

	access.Start()
	if err := access.AwaitChroot(ctx); err != nil {
		// A user's dialer can take long to return, and Connect must not.
		closed := make(chan struct{})
		go func() { c.Close(); close(closed) }()
		wait, stop := session.Linger(ctx, connectGrace)
		defer stop()
		select {
		case <-closed:
		case <-wait.Done():
		}

		return nil, fmt.Errorf("connect to %s: %w", connectString, err)
	}

	return c, nil
}
