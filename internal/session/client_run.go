package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// run opens sessions, one after the other, until Close begins.
func (c *Client) run() {
	connected := false
	for short := 0; ; short++ {
		// A session that ends as soon as it has begun must not make us spin.
		conn.Sleep(conn.PauseAfter(short, c.Ensemble.Timeout), c.Closing.Done())
		if c.Closing.Err() != nil {
			return
		}

		s := c.newSession()
		if err := c.open(s); err != nil {
			s.finish(err)
			refused := errors.Is(err, zk.ErrAuthFailed)
			if refused {
				// Nothing was done in the session, and closing it may take a credential, too.
				s.Conn.Forget()
			}
			// In the background, as that may wait for the next session.
			dispose := func() { c.dispose(c.Work, s.Session) }
			if !c.Spawn(dispose) {
				dispose()
			}
			if !refused {
				continue
			}
			if !connected {
				c.fail(err)
				return
			}

			// The servers may accept the credential again in a while, as they have before.
			c.refuse(err)
			conn.Sleep(c.Ensemble.Timeout, c.Closing.Done())
			continue
		}

		connected = true
		began := time.Now()
		s.keep()
		if time.Since(began) > s.Timeout() {
			short = 0
		}
		if !c.retire(s.Session) {
			return
		}
	}
}

// open makes s the current session as soon as the ensemble grants it.
func (c *Client) open(s *Bound) error {
	if err := s.Conn.Open(); err != nil {
		return err
	}
	conns.Store(s.Conn.ZK(), s)

	c.mu.Lock()
	c.dialing = s.Session
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.dialing = nil
		c.mu.Unlock()
	}()

	select {
	case <-s.Conn.Began():
	case <-s.Done():
		return context.Cause(s.Life)
	case <-c.Closing.Done():
		return ErrClosed
	}
	if err := c.authenticate(s); err != nil {
		return err
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return ErrClosed
	}
	c.current, c.dialing, c.refused = s.Session, nil, nil // at once: Close ends each of the two in its own way
	c.announce()
	c.setState(Connected)
	c.reviewLocked(s.Session)
	return nil
}

// fail makes all calls that wait for a session return err: there will never be one.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
	c.announce()
}

// refuse notes that the servers refuse a credential which they have accepted before.
func (c *Client) refuse(err error) {
	c.Root.Log.Warn("no session", "error", err, "next attempt after", c.Ensemble.Timeout)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = err
}

// authenticate sends the credentials, which zk.Conn then repeats on every connection of the
// session.
func (c *Client) authenticate(s *Bound) error {
	for _, a := range c.Ensemble.Credentials {
		_, err := Do(s.Life, s, func(c *zk.Conn) (struct{}, error) {
			return struct{}{}, c.AddAuth(a.Scheme, a.Secret())
		})
		if err != nil {
			return fmt.Errorf("auth %s: %w", a, err)
		}
	}
	return c.identify(s)
}

// retire takes a session that is over out of use, and starts to close it at the servers. It returns
// false if Close does that.
func (c *Client) retire(s *Session) bool {
	c.mu.Lock()
	mine := !c.stopped
	if mine {
		c.current = nil
		c.setState(Lost)
		c.unclosed[s] = conn.Unclosed(s.ID())
	}
	c.mu.Unlock()
	if !mine {
		return false
	}

	c.Root.Log.Warn("session lost", "session", layout.SessionID(s.ID()), "error", s.Err())
	dispose := func() {
		err := c.dispose(c.Work, s)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil {
			delete(c.unclosed, s)
		} else {
			c.unclosed[s] = err
		}
	}
	if !c.Spawn(dispose) {
		dispose()
	}
	return true
}

// noteChange notes what has become of a connection of s.
func (c *Client) noteChange(s *Session, change conn.Change) {
	if change == conn.Failed {
		c.attempts.Add(1)
		return
	}
	c.review(s)
	if granted := s.Timeout(); change == conn.Connected && granted != c.Ensemble.Timeout {
		c.tellGranted(granted)
	}
}

// dispose closes a session that is over at the servers, unless they have ended it, and joins its
// goroutines. It tries to close the session until ctx ends, and then returns an error.
func (c *Client) dispose(ctx context.Context, s *Session) error {
	defer conns.Delete(s.Conn.ZK())
	return s.Conn.Close(ctx, c.awaitSession)
}

// awaitSession blocks until there is a session, the client is being closed, or ctx ends.
func (c *Client) awaitSession(ctx context.Context) {
	for ctx.Err() == nil && c.Closing.Err() == nil {
		c.mu.Lock()
		there, changed := c.current != nil, c.changed
		c.mu.Unlock()
		if there {
			return
		}
		select {
		case <-changed:
		case <-c.Closing.Done():
		case <-ctx.Done():
		}
	}
}

// newSession returns a session, for work of the client itself.
func (c *Client) newSession() *Bound {
	b := &Bound{View: c.Root, Patient: true, Work: &Nobody, Retried: c.Retried}
	b.Session = newSession(c.Setup, owner{
		log: c.Root.Log, do: b.Do,
		changed: func(change conn.Change) { c.noteChange(b.Session, change) },
	})
	return b
}
