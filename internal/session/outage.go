package session

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// The client tells its logger and its observer when it has had no connection for this long, and
// then at intervals that double up to a minute.
const (
	firstNotice  = time.Second
	rarestNotice = time.Minute
)

// An outage is a time without a connection. A connection that does not last ends no outage, so one
// that comes and goes is told of, too. The mu of the client protects it.
type outage struct {
	notice   *time.Timer
	began    time.Time
	back     time.Time     // when there was a connection again; zero while there is none
	due      time.Time     // when the next notice is
	pause    time.Duration // until the one after it
	attempts int64         // that had failed before it
	told     bool          // a notice has come since there was a connection
}

// An Outage is what the observer is told of a time without a connection.
type Outage struct {
	Session  int64 // that lasts, or 0
	Attempts int   // to connect that have failed
	Lasted   time.Duration
	Err      error // of the last of these
}

// beginOutage notes that there is no connection. The caller holds mu.
func (c *Client) beginOutage() {
	o, now := &c.outage, time.Now()
	lasted := !o.back.IsZero() && now.Sub(o.back) >= firstNotice
	if o.began.IsZero() || lasted {
		o.began, o.attempts = now, c.attempts.Load()
		o.due, o.pause = now.Add(firstNotice), 2*firstNotice
	}
	o.back = time.Time{}
	o.schedule(now, c)
}

func (o *outage) schedule(now time.Time, c *Client) {
	o.stop()
	if !c.stopped {
		// A nanosecond at least, see sleep.
		o.notice = time.AfterFunc(max(o.due.Sub(now), 1), func() { c.Spawn(c.tellOfOutage) })
	}
}

func (o *outage) stop() {
	if o.notice != nil {
		o.notice.Stop()
	}
}

// endOutage notes that there is a connection. The caller holds mu.
func (c *Client) endOutage() {
	o := &c.outage
	o.stop()
	o.back = time.Now()
	if !o.told || c.stopped {
		return
	}
	o.told = false
	c.Root.Log.Info("connected again", "session", layout.SessionID(c.current.ID()), "after", o.back.Sub(o.began).Round(time.Millisecond))
}

// tellOfOutage tells the logger and the observer that there still is no connection, and until when
// what is held can be trusted.
func (c *Client) tellOfOutage() {
	c.mu.Lock()
	o, now := &c.outage, time.Now()
	if c.state == Connected || now.Before(o.due) { // it has come back, and perhaps gone again
		c.mu.Unlock()
		return
	}
	away, attempts := now.Sub(o.began), c.attempts.Load()-o.attempts
	o.due, o.pause = now.Add(o.pause), min(2*o.pause, rarestNotice)
	o.schedule(now, c)
	o.told = true
	s, current, refused := cmp.Or(c.dialing, c.current), c.current, c.refused
	c.mu.Unlock()

	notice := Outage{Attempts: int(attempts), Lasted: away, Err: cmp.Or(refused, errNoAnswer)}
	if s != nil {
		notice.Err = cmp.Or(refused, s.Conn.LastFailure(), errNoAnswer)
	}
	attrs := []any{
		"servers", strings.Join(c.Servers, ","), "for", away.Round(time.Millisecond), "attempts", attempts, "error", notice.Err,
	}
	if current != nil && current.Err() == nil {
		notice.Session = current.ID()
		attrs = append(attrs, "session", layout.SessionID(notice.Session))
		if holds := current.holds(); holds > 0 {
			attrs = append(attrs, "holds", holds, "lost at", current.Deadline())
		}
	}

	if refused == nil { // or else each attempt is logged
		c.Root.Log.Warn("no connection", attrs...)
	}
	c.Tell(notice)
}

var errNoAnswer = errors.New("no attempt to connect has ended yet")

// tellGranted logs, once for each timeout, that the servers grant another session timeout than was
// asked for.
func (c *Client) tellGranted(granted time.Duration) {
	c.mu.Lock()
	told := c.granted[granted]
	if c.granted == nil {
		c.granted = make(map[time.Duration]bool)
	}
	c.granted[granted] = true
	c.mu.Unlock()
	if !told {
		c.Root.Log.Warn("the server grants another session timeout than was asked for", "asked", c.Timeout, "granted", granted)
	}
}
