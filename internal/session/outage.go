package session

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// A client without a connection notifies its logger and its observer after firstNotice and then at
// intervals that double up to rarestNotice.
const (
	firstNotice  = time.Second
	rarestNotice = time.Minute
)

// An outage is a time without a connection. A connection that doesn't last ends no outage. So
// there are notices about a connection that comes and goes, too. The client's mu protects it.
type outage struct {
	notice   *time.Timer
	began    time.Time
	back     time.Time     // when there was a connection again; zero while there is none
	due      time.Time     // when the next notice is due
	pause    time.Duration // from that notice to the one after it
	attempts int64         // failed attempts before the outage
	noticed  bool          // there was a notice since there was a connection
}

// An Outage describes a time without a connection to the observer.
type Outage struct {
	Session  int64 // the current session, or 0
	Attempts int   // failed attempts to connect
	Lasted   time.Duration
	Err      error // of the last attempt
}

// beginOutage notes that there is no connection. The caller holds mu.
func (c *Client) beginOutage() {
	o, now := &c.outage, time.Now()
	// A connection that didn't last does not end the outage before it.
	lasted := !o.back.IsZero() && now.Sub(o.back) >= firstNotice
	if o.began.IsZero() || lasted {
		o.began, o.attempts = now, c.attempts.Load()
		o.due, o.pause = now.Add(firstNotice), 2*firstNotice
	}
	o.back = time.Time{}
	c.scheduleNotice(now)
}

// scheduleNotice sets the timer for the next notice. The caller holds mu.
func (c *Client) scheduleNotice(now time.Time) {
	c.outage.stop()
	if !c.stopped {
		wait := max(c.outage.due.Sub(now), 1) // see conn.Sleep
		c.outage.notice = time.AfterFunc(wait, func() { c.Spawn(c.tellOfOutage) })
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
	if !o.noticed || c.stopped {
		return
	}
	o.noticed = false
	c.Root.Log.Info("connected again", "session", layout.SessionID(c.current.ID()), "after", o.back.Sub(o.began).Round(time.Millisecond))
}

// tellOfOutage notifies the logger and the observer that there is still no connection, and says at
// which time locks will be lost.
func (c *Client) tellOfOutage() {
	c.mu.Lock()
	o, now := &c.outage, time.Now()
	if c.state == Connected || now.Before(o.due) { // it has come back since the timer fired
		c.mu.Unlock()
		return
	}

	// Take a snapshot: the logger and the observer are called without mu.
	notice := Outage{Attempts: int(c.attempts.Load() - o.attempts), Lasted: now.Sub(o.began)}
	o.due, o.pause = now.Add(o.pause), min(2*o.pause, rarestNotice)
	o.noticed = true
	c.scheduleNotice(now)
	s, current, refused := cmp.Or(c.dialing, c.current), c.current, c.refused
	c.mu.Unlock()

	notice.Err = cmp.Or(refused, errNoAnswer)
	if s != nil {
		notice.Err = cmp.Or(refused, s.Conn.LastFailure(), errNoAnswer)
	}

	attrs := []any{
		"servers", strings.Join(c.Servers, ","), "for", notice.Lasted.Round(time.Millisecond), "attempts", notice.Attempts, "error", notice.Err,
	}
	if current != nil && current.Err() == nil {
		notice.Session = current.ID()
		attrs = append(attrs, "session", layout.SessionID(notice.Session))
		if holds := current.holds(); holds > 0 {
			attrs = append(attrs, "holds", holds, "lost at", current.Deadline())
		}
	}

	if refused == nil { // otherwise each attempt is logged
		c.Root.Log.Warn("no connection", attrs...)
	}

	c.Tell(notice)
}

var errNoAnswer = errors.New("no attempt to connect has ended yet")

// tellGranted logs that the servers grant another session timeout than the client asked for, unless
// that was the last one that it logged.
func (c *Client) tellGranted(granted time.Duration) {
	c.mu.Lock()
	logged := c.granted == granted
	c.granted = granted
	c.mu.Unlock()
	if !logged {
		c.Root.Log.Warn("the server grants another session timeout than was asked for", "asked", c.Timeout, "granted", granted)
	}
}
