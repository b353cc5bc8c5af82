package conn

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// Open begins to connect, and returns at once: wait for [Conn.Began]. Call it once.
func (c *Conn) Open() (err error) {
	d := &dialler{conn: c, route: newRoute(c.ensemble)}
	_, c.events, err = zk.Connect(c.ensemble.Servers, c.ensemble.Timeout,
		func(z *zk.Conn) { c.zk = z }, // before it dials
		zk.WithDialer(d.dial),
		zk.WithHostProvider(d),
		zk.WithEventCallback(c.event),
		zk.WithMaxConnBufferSize(4+c.ensemble.Limit),
		zk.WithLogger(logger{c}),
		zk.WithLogInfo(false))
	return err
}

// A logger passes the messages of zk.Conn to the host.
type logger struct{ c *Conn }

func (l logger) Printf(format string, args ...any) {
	format = strings.Replace(format, "authentication failed", "handshake failed", 1) // no credentials are in that handshake
	message := "zk: " + strings.TrimSpace(fmt.Sprintf(format, args...))
	l.c.host.Log(slog.LevelDebug, message, "session", layout.SessionID(l.c.ID()))
}

// Close closes a session that has ended (unless the servers have ended it), and joins its
// goroutines. It tries until ctx ends, and then returns an error. Between two attempts it calls
// await, which waits while another session is looking for a server anyway.
func (c *Conn) Close(ctx context.Context, await func(context.Context)) error {
	w, opened := c.Link(), c.ID() != 0
	joined := make(chan struct{})
	go func() {
		for range c.events { // only the end of the channel matters
		}
		close(joined)
	}()
	if w == nil {
		select {
		case <-c.stubbed:
		case <-joined: // the user has closed zk.Conn
		}
	}

	c.zk.Close() // takes a second if there is a connection and no answer comes
	if w != nil {
		w.Cut(net.ErrClosed)
	}
	<-joined

	c.mu.Lock()
	gone, password, timeout := c.expired, c.password, c.timeout
	c.mu.Unlock()
	if gone || !opened {
		return nil
	}

	return c.closeOrphan(ctx, password(), timeout, await)
}
