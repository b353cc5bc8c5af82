package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// Chance alone would strike the only holder in one schedule of ten.
func TestFaultsAreAimedAtHolders(t *testing.T) {
	const seeds = 40
	met := 0
	require.Nil(t, sim.Find(t, func(w *sim.World) {
		held, clients := w.Exclusive("it"), w.Clients(5)
		for _, c := range clients[1:] {
			c.Go(func(ctx context.Context) error {
				c.Sleep(ctx, 6*w.Timeout)
				return nil
			})
		}

		holder := clients[0]
		holder.Go(func(ctx context.Context) error {
			holder.Sleep(ctx, w.Timeout+holder.Upto(4*w.Timeout))
			before, err := holder.Session(ctx)
			if err != nil {
				return err
			}
			turn := held.Begin(holder, time.Now(), fakeGrant{token: 1})
			turn.Keep(w.Timeout / 2)
			turn.End(nil)
			if before.Err() != nil {
				met++
			}
			return nil
		})
	}, sim.WithFaults(sim.Expiry), sim.WithSeeds(seeds)))
	require.Greater(t, met, seeds/2)
}
