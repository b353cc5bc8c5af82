package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/conn"
)

// closeTimeout bounds Close.
const closeTimeout = 2 * time.Second

// Close is documented in package protocol.
func (c *Client) Close() error {
	c.mu.Lock()
	first := !c.stopped
	c.stopped = true
	c.close(ErrClosed)
	c.outage.stop()
	s, dialing := c.current, c.dialing
	c.mu.Unlock()
	if !first {
		<-c.ended
		return c.endErr
	}

	// End the sessions. Some time must be left at the end to say what failed.
	bound, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	ctx, stop := context.WithTimeout(bound, closeTimeout-closeTimeout/20)
	defer stop()
	defer context.AfterFunc(ctx, c.stop)()
	if dialing != nil {
		dialing.finish(ErrClosed)
	}
	if s != nil {
		s.finish(fmt.Errorf("%w: %w", ErrLost, ErrClosed))
	}

	// Close the current session at the servers, and join the goroutines.
	joined, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		if s != nil {
			failed <- c.dispose(ctx, s)
		}

		c.running.Wait()
		close(joined)
	}()

	select {
	case <-joined:
	case <-bound.Done(): // a user's dialer doesn't return (or zk.Conn doesn't)
	}

	select {
	case c.endErr = <-failed:
	default:
		if s != nil {
			c.endErr = conn.Unclosed(s.ID())
		}
	}

	c.mu.Lock()

	for _, err := range c.unclosed {
		c.endErr = errors.Join(c.endErr, err)
	}

	c.setState(Closed)
	c.mu.Unlock()
	c.stop()
	c.Foreign.drain(bound)
	close(c.ended)
	return c.endErr
}
