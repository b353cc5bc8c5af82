package sim

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
)

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
					e := protocol.Event{Recipe: "lock", Path: w.Path, Session: s.ID(), Token: 7}
					e.Kind, e.Time = protocol.EventAcquired, time.Now()
					c.observe(e)
					if test.disturbed {
						w.disturb(Fault{Kind: Stall, Client: 1, Lasts: time.Millisecond})
					}
					w.forced.done.note(byToken(7))
					c.Sleep(ctx, test.after)
					e.Kind, e.Time = protocol.EventLost, time.Now()
					c.observe(e)
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
