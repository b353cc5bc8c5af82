package sim_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// zkLease makes what zk.Lock gives look like a lease. Who holds it holds it, as far as it is told.
type zkLease struct {
	conn  *zk.Conn
	token int64
}

func (l zkLease) Token() int64          { return l.token }
func (l zkLease) Done() <-chan struct{} { return nil }
func (l zkLease) Err() error            { return nil }

func TestSimFindsTheLockOfGoZookeeperWanting(t *testing.T) {
	for name, faults := range map[string][]sim.Kind{
		"all":          nil,
		"stall":        {sim.Stall},
		"isolation":    {sim.Isolation},
		"pause":        {sim.Pause},
		"lose a reply": {sim.LoseReply},
	} {
		t.Run(name, func(t *testing.T) {
			opts := []sim.Option{sim.Seeds(3000)}
			if faults != nil {
				opts = append(opts, sim.Faults(faults...))
			}
			f := sim.Find(t, contendForZKLock, opts...)
			require.NotNil(t, f)
			t.Log(f)
		})
	}
}

func TestSimLeavesTheLockOfGoZookeeperAloneWithoutFaults(t *testing.T) {
	sim.Run(t, contendForZKLock, sim.Faults(), sim.Seeds(20))
}

// contendForZKLock is contend for those who know no contexts, and no leases.
func contendForZKLock(w *sim.World) {
	held := w.Exclusive("the lock")
	var tokens atomic.Int64 // the order of grants; only one at a time may hold the lock, and count
	for _, c := range w.Clients(3) {
		c.Go(func(ctx context.Context) error {
			conn, _, err := zk.Connect([]string{w.Server.ConnectString()}, w.Timeout, zk.WithDialer(c.Dial), zk.WithLogger(silence{}))
			if err != nil {
				return err
			}
			stop := context.AfterFunc(ctx, conn.Close) // or it would wait for ever
			defer func() {
				if stop() {
					conn.Close()
				}
			}()
			l := zk.NewLock(conn, w.Path, zk.WorldACL(zk.PermAll))
			for range 1 + c.Rand.IntN(4) {
				c.Sleep(ctx, c.Upto(w.Timeout/2))
				called := time.Now()
				if err := l.Lock(); err != nil {
					continue // a network that breaks may be a reason to fail
				}
				turn := held.Begin(c, called, zkLease{conn, tokens.Add(1)})
				turn.Keep(c.Spell())
				turn.End(nil)
				l.Unlock()
			}
			return nil
		})
	}
}

type silence struct{}

func (silence) Printf(string, ...any) {}
