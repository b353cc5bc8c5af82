package protocol

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
)

// connectGrace is how long Connect waits for the client to be closed after ctx has ended.
const connectGrace = 50 * time.Millisecond

// Connect opens a session with the ensemble that the connect string names, such as
// "zk1:2181,zk2:2181,zk3:2181/app". The part from the slash on is a chroot, which is put in front
// of all paths. The default port is 2181.
//
// Connect blocks until there is a session, or ctx ends. It then returns ctx's error, with the error
// of the last attempt to connect. Before any I/O, it returns an error for a bad connect string or a
// bad option. If the servers refuse a credential it returns an error that wraps [zk.ErrAuthFailed].
// ctx bounds Connect alone: the client lives until [Client.Close].
func Connect(ctx context.Context, connectString string, opts ...ConnectOption) (*Client, error) {
	c := &Client{
		sessions: &sessions{
			ensemble: conn.NewEnsemble(),
			changed:  make(chan struct{}),
			ended:    make(chan struct{}),
			unclosed: make(map[*session]error),
		},
		ownerData: thisProcess(),
		observer:  noObserver{},
	}
	c.log = c.foreign.defaultLog()

	var err error
	if c.ensemble.Servers, c.chroot, err = conn.ParseConnectString(connectString); err != nil {
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
	if c.resolve != nil { // whatever the order of the options
		c.ensemble.Lookup = c.resolve
	}
	if ctx == nil {
		return nil, fmt.Errorf("connect: %w", errNilContext)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("connect: %w", conn.ContextError(ctx))
	}

	c.closing, c.close = context.WithCancelCause(context.Background())
	c.work, c.stop = context.WithCancel(context.Background())
	c.ensemble.Closing, c.ensemble.Work, c.ensemble.Spawn, c.ensemble.Refusals = c.closing, c.work, c.spawn, refusals
	c.mu.Lock()
	c.beginOutage()
	c.mu.Unlock()
	c.spawn(c.run)
	if err := c.awaitChroot(ctx); err != nil {
		closed := make(chan struct{})
		go func() { c.Close(); close(closed) }()
		wait, stop := Linger(ctx, connectGrace)
		defer stop()
		select {
		case <-closed:
		case <-wait.Done():
		}
		return nil, fmt.Errorf("connect to %s: %w", connectString, err)
	}
	return c, nil
}

// awaitChroot waits for a session. If the chroot must exist, it returns an error if it does not.
func (c *Client) awaitChroot(ctx context.Context) error {
	for {
		s, err := c.Session(ctx)
		if err != nil || !c.existing {
			return err
		}
		stat, err := (*zk.Stat)(nil), s.Sync(ctx, "/") // or else the server may not have heard of it
		if err == nil {
			stat, err = s.Exists(ctx, "/")
		}
		switch {
		case err == nil && stat == nil:
			return c.noChroot()
		case errors.Is(err, zk.ErrNoAuth): // so it is there
			return nil
		case err == nil || ctx.Err() != nil || s.Err() == nil || c.closing.Err() != nil:
			return err
		}
	}
}

// With returns a client with other options on the same sessions. Closing either client closes both.
// With does no I/O. A bad option is returned by the first operation of the new client.
func (c *Client) With(opts ...Option) *Client {
	view := &Client{
		sessions: c.sessions, aclFor: c.aclFor, anyACL: c.anyACL, ownerData: c.ownerData, newBackOff: c.newBackOff, log: c.log,
		observer: c.observer, observing: c.observing, err: c.err,
	}
	for _, o := range opts {
		if o == nil {
			view.err = errors.Join(view.err, errors.New("nil option"))
		} else if err := o.apply(view); err != nil {
			view.err = errors.Join(view.err, err)
		}
	}
	return view
}
