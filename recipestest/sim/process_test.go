package sim_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// A process that dies is silent from then on. Its session lasts for as long as the server grants,
// and its successor has another one.
func TestDeadProcessIsSilentAndHasASuccessor(t *testing.T) {
	var deaths, successors atomic.Int64
	simulate := func(w *sim.World) {
		tree, err := recipe.SessionOf(context.Background(), w.Operator())
		require.NoError(w, err)
		_, err = tree.EnsurePath(context.Background(), w.Path)
		require.NoError(w, err)
		processes := 0
		w.Processes(2, func(c *sim.Client) {
			if processes++; processes > 2 {
				successors.Add(1)
			}
			own, err := c.Session(context.Background())
			require.NoError(w, err)
			node := fmt.Sprintf("%s/%d", w.Path, own.ID())
			c.Go(func(ctx context.Context) error {
				if _, err := own.Conn().Create(node, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
					return nil // it is dead already
				}
				for end := w.Now() + 5*w.Timeout; w.Now() < end && !c.Dead(); {
					time.Sleep(w.Timeout / 100)
				}
				if !c.Dead() {
					return own.Conn().Delete(node, -1)
				}

				deaths.Add(1)
				sent := c.Link.Count(recipestest.OpAny) + c.Link.Count(recipestest.OpConnect) + c.Link.Count(recipestest.OpPing)
				if ctx.Err() == nil {
					return errors.New("the context of a dead process goes on")
				}
				time.Sleep(w.Timeout / 2)
				if there, _, err := tree.Conn().Exists(node); err != nil || !there {
					w.Errorf("the session of a dead process has ended early: %v", err)
				}
				time.Sleep(w.Timeout * 3 / 2)
				if there, _, err := tree.Conn().Exists(node); err != nil || there {
					w.Errorf("the session of a dead process goes on: %v", err)
				}
				if now := c.Link.Count(recipestest.OpAny) + c.Link.Count(recipestest.OpConnect) + c.Link.Count(recipestest.OpPing); now != sent {
					w.Errorf("a dead process has sent %d packets", now-sent)
				}
				return errors.New("which does not count")
			})
		})
		w.Check(func() error {
			if len(w.Alive()) != 2 || w.Alive()[0].Dead() || w.Alive()[1].Dead() {
				return errors.New("a process has no successor")
			}
			return nil
		})
	}

	require.Nil(t, sim.Find(t, simulate, sim.WithFaults(sim.Death), sim.WithSeeds(40)))
	require.Greater(t, deaths.Load(), int64(20))
	require.Equal(t, deaths.Load(), successors.Load())
}

// A grant of a process ends with it, whatever the grant says.
func TestDeadProcessHoldsNothing(t *testing.T) {
	var deaths atomic.Int64
	require.Nil(t, sim.Find(t, func(w *sim.World) {
		held := w.Exclusive("it")
		var tokens atomic.Int64
		w.Processes(1, func(c *sim.Client) {
			c.Go(func(context.Context) error {
				turn := held.Begin(c, time.Now(), fakeGrant{token: tokens.Add(1)})
				turn.Keep(3 * w.Timeout)
				if !c.Dead() {
					return turn.End(nil)
				}
				deaths.Add(1)
				for range 10 {
					turn.Keep(w.Timeout) // a successor holds meanwhile
					c.Sleep(context.Background(), w.Timeout)
				}
				late := held.Begin(c, time.Now(), fakeGrant{token: 1}) // nothing is granted to the dead
				late.Keep(w.Timeout)
				return late.End(errors.New("which does not count"))
			})
		})
	}, sim.WithFaults(sim.Death), sim.WithSeeds(20)))
	require.Greater(t, deaths.Load(), int64(10))
}
