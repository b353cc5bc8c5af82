package sim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// Clients run a few keys, each until it is done. An operator ends some runs by force when they are
// about to be recorded.
func TestSimOnce(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		var keys []*onceKey
		for i := range 3 + w.Rand.IntN(3) {
			name := fmt.Sprint("key-", i)
			// Each failure of a key (in any process) doubles the pause before its next run.
			keys = append(keys, &onceKey{name: name, held: w.Exclusive(name), fails: w.Rand.IntN(3), told: make(map[int64]bool)})
		}
		operator := operatorAt(w, path.Dir(w.Path))
		w.Processes(2+w.Rand.IntN(3), func(c *sim.Client) {
			o := once.New(c.Client, w.Path)
			for _, key := range keys {
				begins := c.Upto(w.Timeout)
				c.Go(func(ctx context.Context) error {
					c.Sleep(ctx, begins)
					return key.do(ctx, c, o, operator.Conn())
				})
			}
		})
		for _, key := range keys {
			w.Finally(key.name+" is done once", func(ctx context.Context) error {
				ran, err := once.New(w.Alive()[0].Client, w.Path).Do(ctx, key.name, func(context.Context, *once.Run) error { return nil })
				if ran || err != nil {
					return fmt.Errorf("a key that is done: %t, %w", ran, err)
				}
				data, _, err := operatorAt(w, path.Dir(w.Path)).Conn().Get(w.Path + "/done/" + key.name)
				if err != nil {
					return err
				}
				return key.check(data)
			})
		}
	})
}

// A onceKey is a key and what was told about its runs.
type onceKey struct {
	name  string
	held  *sim.Exclusive
	mu    sync.Mutex     // protects what follows
	fails int            // how many runs fail yet
	told  map[int64]bool // whether a run is recorded, by its token
}

// do calls Do until the key is done.
func (k *onceKey) do(ctx context.Context, c *sim.Client, o *once.Once, operator *zk.Conn) error {
	errFailed := errors.New("failed")
	for {
		var token int64
		called := time.Now()
		ran, err := o.Do(ctx, k.name, func(_ context.Context, right *once.Run) error {
			token = right.Token()
			turn := k.held.Begin(c, called, right)
			turn.Keep(c.Spell())
			turn.End(nil)
			k.mu.Lock()
			k.fails--
			fails := k.fails >= 0
			k.mu.Unlock()
			if fails {
				return errFailed
			}
			if c.Rand.IntN(2) == 0 {
				go operator.Delete(right.Check().Path, -1)
				c.Sleep(ctx, c.Upto(2*time.Millisecond)) // the watch event takes that long
			}
			return nil
		})
		if ran && !errors.Is(err, protocol.ErrUncertain) {
			k.mu.Lock()
			k.told[token] = err == nil
			k.mu.Unlock()
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, errFailed) && !errors.Is(err, protocol.ErrLost) && !errors.Is(err, protocol.ErrUncertain):
			return err
		}
	}
}

// check compares what runs were told with the record.
func (k *onceKey) check(data []byte) error {
	var record struct{ Token int64 }
	if err := json.Unmarshal(data, &record); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for token, recorded := range k.told {
		if recorded != (token == record.Token) {
			return fmt.Errorf("run %d is recorded, and run %d was told about itself: %t", record.Token, token, recorded)
		}
	}
	return nil
}
