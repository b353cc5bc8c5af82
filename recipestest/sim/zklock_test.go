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

// zkLease makes the lock of go-zookeeper look like a lease. Its holder never learns of a loss.
type zkLease struct {
	conn  *zk.Conn
	token int64
}

func (l zkLease) Token() int64          { return l.token }
func (l zkLease) Done() <-chan struct{} { return nil }
func (l zkLease) Err() error            { return nil }

func TestSimFindsBugsOfTheLockOfGoZookeeper(t *testing.T) {
	for name, faults := range map[string][]sim.Kind{
		"all":          nil,
		"stall":        {sim.Stall},
		"isolation":    {sim.Isolation},
		"pause":        {sim.Pause},
		"lose a reply": {sim.LoseReply},
	} {
		t.Run(name, func(t *testing.T) {
			opts := []sim.Option{sim.WithSeeds(3000)}
			if faults != nil {
				opts = append(opts, sim.WithFaults(faults...))
			}
			f := sim.Find(t, contendForZKLock, opts...)
			require.NotNil(t, f)
			t.Log(f)
		})
	}
}

func TestLockOfGoZookeeperWorksWithoutFaults(t *testing.T) {
	sim.Run(t, contendForZKLock, sim.WithFaults(), sim.WithSeeds(20))
}

// contendForZKLock is contend for a lock without contexts and leases.
func contendForZKLock(w *sim.World) {
	held := w.Exclusive("the lock")
	var tokens atomic.Int64 // the order of grants, counted by the holder
	for _, c := range w.Clients(3) {
		c.Go(func(ctx context.Context) error {
			conn, _, err := zk.Connect([]string{w.Server.ConnectString()}, w.Timeout, zk.WithDialer(c.Dial), zk.WithLogger(silence{}))
			if err != nil {
				return err
			}

			stop := context.AfterFunc(ctx, conn.Close) // otherwise it would wait for ever
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
					continue // a broken network may make it fail
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
