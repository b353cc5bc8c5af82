package protocol

import (
	"context"
	"crypto/sha1" //nolint:gosec // what servers compute
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// run opens sessions, one after the other, until Close begins.
func (c *Client) run() {
	connected := false
	for short := 0; ; short++ {
		// A session that ends as soon as it has begun must not make us spin.
		conn.Sleep(conn.PauseAfter(short, c.ensemble.Timeout), c.closing.Done())
		if c.closing.Err() != nil {
			return
		}

		s := newSession(c)
		if err := c.open(s); err != nil {
			s.finish(err)
			refused := errors.Is(err, zk.ErrAuthFailed)
			if refused {
				// Nothing was done in the session, and closing it may take a credential, too.
				s.conn.Forget()
			}
			// In the background, as that may wait for the next session.
			dispose := func() { c.dispose(c.work, s.session) }
			if !c.spawn(dispose) {
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
			conn.Sleep(c.ensemble.Timeout, c.closing.Done())
			continue
		}

		connected = true
		began := time.Now()
		s.keep()
		if time.Since(began) > s.Timeout() {
			short = 0
		}
		if !c.retire(s.session) {
			return
		}
	}
}

// open makes s the current session as soon as the ensemble grants it.
func (c *Client) open(s *Session) error {
	if err := s.conn.Open(); err != nil {
		return err
	}
	conns.Store(s.Conn(), s)

	c.mu.Lock()
	c.dialing = s.session
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.dialing = nil
		c.mu.Unlock()
	}()

	select {
	case <-s.conn.Began():
	case <-s.Done():
		return context.Cause(s.life)
	case <-c.closing.Done():
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
	c.current, c.dialing, c.refused = s.session, nil, nil // at once: Close ends each of the two in its own way
	c.announce()
	c.setState(Connected)
	c.reviewLocked(s.session)
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
	c.log.Warn("no session", "error", err, "next attempt after", c.ensemble.Timeout)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = err
}

// authenticate sends the credentials, which zk.Conn then repeats on every connection of the
// session.
func (c *Client) authenticate(s *Session) error {
	for _, a := range c.ensemble.Credentials {
		_, err := Do(s.life, s.Background(), func(c *zk.Conn) (struct{}, error) {
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
func (c *Client) retire(s *session) bool {
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

	c.log.Warn("session lost", "session", layout.SessionID(s.ID()), "error", s.Err())
	dispose := func() {
		err := c.dispose(c.work, s)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil {
			delete(c.unclosed, s)
		} else {
			c.unclosed[s] = err
		}
	}
	if !c.spawn(dispose) {
		dispose()
	}
	return true
}

// noteChange notes what has become of a connection of s.
func (c *Client) noteChange(s *session, change conn.Change) {
	if change == conn.Failed {
		c.attempts.Add(1)
		return
	}
	c.review(s)
	if granted := s.Timeout(); change == conn.Connected && granted != c.ensemble.Timeout {
		c.tellGranted(granted)
	}
}

// dispose closes a session that is over at the servers, unless they have ended it, and joins its
// goroutines. It tries to close the session until ctx ends, and then returns an error.
func (c *Client) dispose(ctx context.Context, s *session) error {
	defer conns.Delete(s.Conn())
	return s.conn.Close(ctx, c.awaitSession)
}

// awaitSession blocks until there is a session, the client is being closed, or ctx ends.
func (c *Client) awaitSession(ctx context.Context) {
	for ctx.Err() == nil && c.closing.Err() == nil {
		c.mu.Lock()
		there, changed := c.current != nil, c.changed
		c.mu.Unlock()
		if there {
			return
		}
		select {
		case <-changed:
		case <-c.closing.Done():
		case <-ctx.Done():
		}
	}
}

// identify finds out what new nodes get whose ACL nothing else says: all permissions for the
// identities of the credentials alone. The connection may have more identities than these.
func (c *Client) identify(s *Session) error {
	var own []zk.ACL
	var asked []zk.ACL
	for _, a := range c.ensemble.Credentials {
		switch {
		case !a.Identifies():
		case a.Scheme == "digest":
			own = append(own, zk.ACL{Perms: zk.PermAll, Scheme: "digest", ID: digestOf(a.Secret())})
		case c.anyACL:
		default:
			if asked == nil {
				var err error
				if asked, err = s.whoAmI(); err != nil {
					return fmt.Errorf("%w: the servers do not say which identity that is: give WithACL: %w", zk.ErrAuthFailed, err)
				}
			}
			n := len(own)
			for _, id := range asked {
				if id.Scheme == a.Scheme {
					own = append(own, id)
				}
			}
			if len(own) == n {
				return fmt.Errorf("auth %s: %w: the servers know no identity of this scheme: give WithACL", a, zk.ErrAuthFailed)
			}
		}
	}
	if len(own) > 0 {
		c.own.Store(&own)
	}
	return nil
}

// digestOf returns the identity that servers make of a credential of the scheme "digest".
func digestOf(credential []byte) string {
	user, _, _ := strings.Cut(string(credential), ":")
	sum := sha1.Sum(credential) //nolint:gosec // what servers compute
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

// whoAmI asks the server for the identities of the connection.
func (s *Session) whoAmI() (ids []zk.ACL, err error) {
	return Do(s.life, s.Background(), func(*zk.Conn) (ids []zk.ACL, err error) {
		w := s.conn.Link()
		if w == nil {
			return nil, zk.ErrConnectionClosed
		}
		r := w.Ask(zkwire.OpWhoAmI, "", nil)
		if r.Code != zkwire.CodeOK {
			return nil, conn.ErrorOf(r.Code)
		}
		body := zkwire.Decoder{Rest: r.Body}
		body.Vector(func() {
			ids = append(ids, zk.ACL{Perms: zk.PermAll, Scheme: body.String(), ID: body.String()})
		})
		if body.Bad {
			err = zkwire.ErrMalformed
		}
		return ids, err
	})
}

// newSession returns a session of the client that Connect made, which is bound to that.
func newSession(c *Client) *Session {
	s := &Session{client: c, patient: true}
	s.session = newKernel(c.ensemble, c.chroot, owner[*Grant]{
		log: c.log, do: s.background, lose: loseAll,
		changed: func(change conn.Change) { c.noteChange(s.session, change) },
	})
	return s
}
