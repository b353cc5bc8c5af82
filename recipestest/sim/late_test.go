package sim

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// tell has the client hear that it has a lock now, or has lost it.
func (c *Client) tell(kind protocol.EventKind, session, token int64) {
	c.observe(protocol.Event{
		Kind: kind, Time: time.Now(), Recipe: "lock", Path: c.world.Path, Session: session, Token: token,
	})
}

// Events alone show that two clients hold a lock, of which the simulation has no history.
func TestTwoHoldersByTheirEvents(t *testing.T) {
	f := Find(t, func(w *World) {
		for i, c := range w.Clients(2) {
			c.Go(func(ctx context.Context) error {
				c.tell(protocol.EventAcquired, 0, int64(1+i))
				c.Sleep(ctx, w.Timeout/4)
				c.tell(protocol.EventReleased, 0, int64(1+i))
				return nil
			})
		}
	}, WithFaults(), WithSeeds(1))
	require.NotNil(t, f)
	require.ErrorContains(t, f.Err, "has two holders, as their events say")
}

// A client whose hold was ended by force has to notice it at once, unless a fault is in the way.
func TestHolderMustNoticeAForcedEnd(t *testing.T) {
	for name, test := range map[string]struct {
		after     time.Duration // in which the client notices
		disturbed bool
		want      string
	}{
		"at once":                        {50 * time.Millisecond, false, ""},
		"late":                           {200 * time.Millisecond, false, "has noticed only after 200ms that it had lost it"},
		"with a fault in the way":        {200 * time.Millisecond, true, ""},
		"a fault does not excuse it all": {10 * time.Second, true, "has noticed only after 10s that it had lost it"},
	} {
		t.Run(name, func(t *testing.T) {
			f := Find(t, func(w *World) {
				c := w.Clients(1)[0]
				c.Go(func(ctx context.Context) error {
					s, err := c.Session(ctx)
					if err != nil {
						return err
					}
					c.tell(protocol.EventAcquired, s.ID(), 7)
					if test.disturbed {
						w.disturb(Fault{Kind: Stall, Client: 1, Lasts: time.Millisecond})
					}
					w.forced.done.note(byToken(7))
					c.Sleep(ctx, test.after)
					c.tell(protocol.EventLost, s.ID(), 7)
					return nil
				})
			}, WithFaults(), WithSeeds(1))
			if test.want == "" {
				require.Nil(t, f)
				return
			}
			require.NotNil(t, f)
			require.ErrorContains(t, f.Err, test.want)
		})
	}
}
