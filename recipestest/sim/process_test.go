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

	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// A process that dies is silent from then on, and holds nothing, whatever its grants say. Its
// session lasts for as long as the server grants, and its successor has another one.
func TestDeadProcessIsSilentAndHasASuccessor(t *testing.T) {
	var deaths, successors atomic.Int64
	simulate := func(w *sim.World) {
		tree := operatorAt(w, w.Path).Conn()
		var tokens atomic.Int64
		places := map[string]*sim.Exclusive{"client 1": w.Exclusive("one"), "client 2": w.Exclusive("two")}
		w.Processes(2, func(c *sim.Client) {
			held := places[c.Name]
			own, err := c.Session(context.Background())
			require.NoError(w, err)
			node := fmt.Sprintf("%s/%d", w.Path, own.ID())
			c.Go(func(ctx context.Context) error {
				turn := held.Begin(c, time.Now(), fakeGrant{token: tokens.Add(1)})
				if _, err := own.Conn().Create(node, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
					return nil // it is dead already
				}
				turn.Keep(5 * w.Timeout)
				if !c.Dead() {
					return errors.Join(turn.End(nil), own.Conn().Delete(node, -1))
				}

				deaths.Add(1)
				sent := sentBy(c)
				if ctx.Err() == nil {
					return errors.New("the context of a dead process goes on")
				}
				time.Sleep(w.Timeout / 2)
				if there, _, err := tree.Exists(node); err != nil || !there {
					w.Errorf("the session of a dead process has ended early: %v", err)
				}
				time.Sleep(w.Timeout * 3 / 2)
				if there, _, err := tree.Exists(node); err != nil || there {
					w.Errorf("the session of a dead process goes on: %v", err)
				}
				if now := sentBy(c); now != sent {
					w.Errorf("a dead process has sent %d packets", now-sent)
				}
				turn.Holds() // a successor holds meanwhile
				held.Begin(c, time.Now(), fakeGrant{token: 1}).Keep(w.Timeout)
				return turn.End(errors.New("which does not count"))
			})
		})
		w.Check(func() error {
			successors.Add(tokens.Load() - 2)
			if len(w.Alive()) != 2 || w.Alive()[0].Dead() || w.Alive()[1].Dead() {
				return errors.New("a process has no successor")
			}
			return nil
		})
	}

	require.Nil(t, sim.Find(t, simulate, sim.WithFaults(sim.Death), sim.WithSeeds(20)))
	require.Greater(t, deaths.Load(), int64(10))
	require.Equal(t, deaths.Load(), successors.Load())
}

func sentBy(c *sim.Client) int {
	return c.Link.Count(recipestest.OpAny) + c.Link.Count(recipestest.OpConnect) + c.Link.Count(recipestest.OpPing)
}
