package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// run opens one session after another until Close begins.
func (c *Client) run() {
	connected := false
	for short := 0; ; short++ {
		// A session that ends as soon as it has begun must not make us spin.
		conn.Sleep(conn.PauseAfter(short, c.Ensemble.Timeout), c.Closing.Done())
		if c.Closing.Err() != nil {
			return
		}

		s := newSession(c.Setup, c)
		if err := c.open(s); err != nil {
			s.finish(err)
			refused := errors.Is(err, zk.ErrAuthFailed)
			if refused {
				// Nothing was done in the session, and to close it can take a credential, too.
				s.Conn.Forget()
			}

			// In the background because disposing can wait for the next session.
			c.spawnOrRun(func() { c.dispose(c.Work, s) })
			if !refused {
				continue
			}
			if !connected {
				c.fail(err)
				return
			}

			// The servers have accepted the credential before and can do so again.
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
		if !c.retire(s) {
			return
		}
	}
}

// spawnOrRun runs f in a goroutine, or itself if Close has begun.
func (c *Client) spawnOrRun(f func()) {
	if !c.Spawn(f) {
		f()
	}
}

// own returns s for requests of the client's own.
func (c *Client) own(s *Session) *Bound {
	return &Bound{Session: s, View: c.Root, Patient: true, Work: s.Nobody, Retried: c.Retried}
}

func (c *Client) do(s *Session, request func(*zk.Conn) error) error { return c.own(s).Do(request) }

func (c *Client) log() *slog.Logger { return c.Root.Log }

// open makes s the current session as soon as the ensemble grants it.
func (c *Client) open(s *Session) error {
	if err := s.Conn.Open(); err != nil {
		return err
	}

	// From now on its requests draw on its account.
	conns.Store(s.Conn.ZK(), s)

	c.mu.Lock()
	c.dialing = s
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
	if err := c.authenticate(c.own(s)); err != nil {
		return err
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return ErrClosed
	}

	// All at once because Close ends the current session in another way than one being dialled.
	c.current, c.dialing, c.refused = s, nil, nil
	c.announce()
	c.setState(Connected)
	c.review(s)
	return nil
}

// fail makes all calls that wait for a session return err because there will never be a session.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
	c.announce()
}

// refuse notes that the servers refuse a credential that they have accepted before.
func (c *Client) refuse(err error) {
	c.Root.Log.Warn("no session", "error", err, "next attempt after", c.Ensemble.Timeout)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = err
}

// authenticate sends the credentials. zk.Conn repeats them on every connection of the session.
func (c *Client) authenticate(s *Bound) error {
	for _, a := range c.Ensemble.Credentials {
		if err := s.Do(func(c *zk.Conn) error { return c.AddAuth(a.Scheme, a.Secret()) }); err != nil {
			return fmt.Errorf("auth %s: %w", a, err)
		}
	}
	return c.identify(s)
}

// retire takes a session out of use that has ended and begins to close it at the servers. It
// returns false if Close does that.
func (c *Client) retire(s *Session) bool {
	c.mu.Lock()
	// Close closes the current session itself.
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
	c.spawnOrRun(func() {
		err := c.dispose(c.Work, s)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil {
			delete(c.unclosed, s)
		} else {
			c.unclosed[s] = err
		}
	})

	return true
}

func (c *Client) noteChange(s *Session, change conn.Change) {
	if change == conn.Failed {
		c.attempts.Add(1)
		return
	}

	c.mu.Lock()
	c.review(s)
	c.mu.Unlock()
	if granted := s.Timeout(); change == conn.Connected && granted != c.Ensemble.Timeout {
		c.tellGranted(granted)
	}
}

// dispose closes a session that has ended at the servers unless they have ended it and joins its
// goroutines. It tries to close the session until ctx ends and then returns an error.
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
