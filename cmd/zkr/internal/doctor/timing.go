package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// timeouts compares the session timeout with the servers' limits and tick.
func (e *examination) timeouts(ctx context.Context) Finding {
	f := Finding{Check: "session timeout", Status: OK, Looked: "the timeouts granted to sessions that ask for 1ms, for a day, and for " + e.Timeout.String()}
	granted, err := e.granted(ctx, e.Timeout)
	least, err1 := e.granted(ctx, time.Millisecond)
	most, err2 := e.granted(ctx, 24*time.Hour)
	if err := errors.Join(err, err1, err2); err != nil {
		f.Status, f.Found = Unknown, err.Error()
		return f
	}

	conf := e.conf(ctx)
	tick := time.Duration(conf["tickTime"]) * time.Millisecond
	f.Found = fmt.Sprintf("%v granted for %v; limits %v to %v", granted, e.Timeout, least, most)
	if tick > 0 {
		f.Found += fmt.Sprintf("; tick %v", tick)
		if limit := conf["syncLimit"]; limit > 0 {
			f.Found += fmt.Sprintf(", syncLimit %d ticks", limit)
		}
	} else {
		tick = least / 2
		f.Found += fmt.Sprintf("; the tick is not told, %v by the default limits", tick)
	}

	switch {
	case granted < 2*tick:
		f.Status = Fail
		f.Do = "ask for two ticks at least: with less, a holder may learn of a loss too late"
	case least < 2*tick:
		f.Status = Warn
		f.Do = "set minSessionTimeout to two ticks: a client that asks for less may learn of a loss too late"
	case granted != e.Timeout:
		f.Status = Warn
		f.Do = "ask for a timeout within the limits, or change minSessionTimeout and maxSessionTimeout"
	}
	return f
}

// granted returns the session timeout that the servers grant for d.
func (e *examination) granted(ctx context.Context, d time.Duration) (granted time.Duration, err error) {
	err = e.within(ctx, e.Servers, func(_ context.Context, s *recipe.Session) error {
		granted = s.Timeout()
		return nil
	}, protocol.WithSessionTimeout(d))
	return granted, err
}

const lagRounds = 3

// lagOf returns the longest time until a server showed a write that another server had answered
// (with a round trip).
func (e *examination) lagOf(ctx context.Context, theirs *recipe.Session) (worst time.Duration, err error) {
	ours, err := recipe.SessionOf(ctx, e.client)
	if err != nil {
		return 0, err
	}

	for range lagRounds {
		written, err := ours.Set(ctx, e.clockNode(), nil, -1)
		if err != nil {
			return 0, err
		}

		began := time.Now()
		if _, err := theirs.WaitNode(ctx, e.clockNode(), func(seen *zk.Stat) bool { return seen.Mzxid >= written.Mzxid }); err != nil {
			return 0, err
		}

		worst = max(worst, time.Since(began))
	}
	return worst, nil
}

// A tick is a moment by the leader's clock and by ours. Their difference is exact to err.
type tick struct {
	leader, ours time.Time
	err          time.Duration
}

// tick writes a node, which gets the leader's time. It returns the best of several attempts, or a
// zero tick if it can't write.
func (e *examination) tick(ctx context.Context) (best tick) {
	s, err := recipe.SessionOf(ctx, e.client)
	for n := 0; n < 3 && err == nil; n++ {
		before := time.Now()
		var stat *zk.Stat
		if stat, err = s.Set(ctx, e.clockNode(), nil, -1); err != nil {
			return tick{}
		}

		// The leader wrote the node at some time in between, so the middle is exact to half of
		// that.
		took := time.Since(before)
		if best.ours.IsZero() || took/2+time.Millisecond < best.err {
			best = tick{time.UnixMilli(stat.Mtime), before.Add(took / 2), took/2 + time.Millisecond}
		}
	}
	return best
}

// clockSpan is the least time between the two readings of the clocks.
const clockSpan = 2 * time.Second

// clock compares the rates of the leader's clock and of ours.
func (e *examination) clock(ctx context.Context) Finding {
	f := Finding{Check: "clocks", Status: OK, Looked: "the leader's clock and this one, twice"}

	select {
	case <-time.After(clockSpan - time.Since(e.firstTick.ours)):
	case <-ctx.Done():
		return f
	}

	// Read the clock again, a while after the first time.
	last := e.tick(ctx)
	if last.ours.IsZero() {
		f.Status, f.Found = Unknown, "unknown: the node could not be written"
		return f
	}

	// A difference only counts if it is larger than the readings' errors.
	span := last.ours.Sub(e.firstTick.ours)
	drift := last.leader.Sub(e.firstTick.leader) - span
	accuracy := last.err + e.firstTick.err
	offset := last.leader.Sub(last.ours)
	percent := func(d time.Duration) float64 { return 100 * float64(d) / float64(span) }
	f.Found = fmt.Sprintf("rates differ by %+.2f %% ± %.2f %% over %v; the leader's is ahead by %v ± %v",
		percent(drift), percent(accuracy), round(span), round(offset), round(last.err))
	switch {
	case (drift-accuracy).Abs() > span/12 && (drift+accuracy).Abs() > span/12:
		f.Status = Fail
		f.Do = "repair the clocks: trust in what is held allows for a twelfth"
	case (drift-accuracy).Abs() > span/50 && (drift+accuracy).Abs() > span/50:
		f.Status, f.Do = Warn, "look at NTP on both machines: a virtual machine may have been paused"
	case offset.Abs() > time.Second+last.err:
		f.Status, f.Do = Warn, "synchronise the clocks: locks do not need it, but times that are shown, and delays of queues, do"
	}
	return f
}

// size finds out how large a request can be.
func (e *examination) size(ctx context.Context) Finding {
	const overhead = 1000 // for paths and ACLs
	f := Finding{Check: "request size", Status: OK, Looked: "a node of a megabyte, and smaller ones where that was refused"}

	for size := recipe.MaxData - overhead; size > 10_000; size /= 2 {
		err := e.write(ctx, size)
		if errors.Is(err, zk.ErrConnectionClosed) { // a single break can be chance
			err = e.write(ctx, size)
		}

		if err == nil {
			f.Found = fmt.Sprintf("%d bytes are accepted", size)
			if size < recipe.MaxData-overhead {
				f.Status = Warn
				f.Found += ", and twice as many are not"
				f.Do = "raise jute.maxbuffer to its default of 1048575 on all servers, or keep data small"
			}
			return f
		}

		if !errors.Is(err, protocol.ErrTooLarge) && !errors.Is(err, zk.ErrConnectionClosed) {
			f.Status, f.Found = Unknown, err.Error()
			return f
		}
	}

	f.Status, f.Found, f.Do = Fail, "not even 20 kB are accepted", "raise jute.maxbuffer to its default of 1048575 on all servers"
	return f
}

// write tries once to create a node of that size. It uses a session of its own because a server
// that refuses the request closes the connection.
func (e *examination) write(ctx context.Context, size int) error {
	return e.within(ctx, e.Servers, func(ctx context.Context, s *recipe.Session) error {
		// zk.Conn.Create takes no context.
		created := make(chan error, 1)
		go func() {
			path := e.Path + "/size"
			_, err := s.Conn().Create(s.Path(path), make([]byte, size), zk.FlagEphemeral, s.ACL(path))
			created <- err
		}()

		select {
		case err := <-created:
			return err // the node ends with the session
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// round rounds a duration for readers.
func round(d time.Duration) time.Duration {
	if d.Abs() < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}
