package sim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// A runner runs fn once per key.
type runner interface {
	Do(ctx context.Context, key string, fn func(ctx context.Context, right sim.Grant) error) (ran bool, err error)
}

// A onceRunner is a Once.
type onceRunner struct{ *once.Once }

func (o onceRunner) Do(ctx context.Context, key string, fn func(context.Context, sim.Grant) error) (ran bool, err error) {
	return o.Once.Do(ctx, key, func(ctx context.Context, r *once.Run) error { return fn(ctx, r) })
}

func TestSimOnce(t *testing.T) {
	sim.Run(t, runOnce(func(c *protocol.Client, path string) runner { return onceRunner{once.New(c, path)} }))
}

// A locked runner does what a lock and a record can do that is written after looking at the lease.
type locked struct {
	client *protocol.Client
	path   string
}

func (l locked) Do(ctx context.Context, key string, fn func(context.Context, sim.Grant) error) (ran bool, err error) {
	err = lock.New(l.client, l.path+"/"+key).Do(ctx, func(held context.Context, lease *lock.Lease) error {
		s, err := l.client.Session(ctx)
		if err != nil {
			return err
		}
		done := l.path + "/done/" + key
		if stat, err := s.Exists(ctx, done); stat != nil || err != nil {
			return err
		}
		ran = true
		if err := fn(held, lease); err != nil {
			return err
		}
		data, err := json.Marshal(map[string]int64{"token": lease.Token()})
		if err != nil {
			return err
		}
		if _, err := s.EnsurePath(ctx, l.path+"/done"); err != nil {
			return err
		}
		return s.Create(ctx, done, data, 0)
	})
	return ran, err
}

func TestSimFindsARecordThatDoesNotCheckTheLock(t *testing.T) {
	f := sim.Find(t, runOnce(func(c *protocol.Client, path string) runner { return locked{c, path} }), sim.WithSeeds(1000))
	require.NotNil(t, f)
	t.Log(f)
}

// runOnce has clients run a few keys, each until it is done.
func runOnce(newRunner func(*protocol.Client, string) runner) func(*sim.World) {
	return func(w *sim.World) {
		held, fails := make(map[string]*sim.Exclusive), make(map[string]int)
		var keys []string
		for i := range 1 + w.Rand.IntN(2) {
			key := fmt.Sprint("key-", i)
			keys = append(keys, key)
			// Each failure of a key (in any process) doubles the pause before its next run.
			held[key], fails[key] = w.Exclusive(key), w.Rand.IntN(5)
		}
		book := &onceBook{fails: fails, recorded: make(map[string][]int64), lost: make(map[string][]int64)}
		w.Processes(2+w.Rand.IntN(3), func(c *sim.Client) {
			o := newRunner(c.Client, w.Path)
			for _, key := range keys {
				begins := c.Upto(w.Timeout)
				c.Go(func(ctx context.Context) error {
					c.Sleep(ctx, begins)
					return book.do(ctx, c, o, key, held[key])
				})
			}
		})
		for _, key := range keys {
			w.Finally(key+" is done once", func(ctx context.Context) error {
				return book.check(ctx, w.Alive()[0].Client, newRunner(w.Alive()[0].Client, w.Path), w.Path, key)
			})
		}
	}
}

// A onceBook has the tokens of runs that were told whether they are recorded.
type onceBook struct {
	mu             sync.Mutex     // protects what follows
	fails          map[string]int // how many runs fail yet
	recorded, lost map[string][]int64
}

// do calls Do until the key is done.
func (b *onceBook) do(ctx context.Context, c *sim.Client, o runner, key string, held *sim.Exclusive) error {
	errFailed := errors.New("failed")
	for {
		var token int64
		called := time.Now()
		ran, err := o.Do(ctx, key, func(_ context.Context, right sim.Grant) error {
			token = right.Token()
			turn := held.Begin(c, called, right)
			turn.Keep(c.Spell())
			turn.End(nil)
			if b.fail(key) {
				return errFailed
			}
			return nil
		})
		b.note(key, token, ran, err)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, errFailed) && !errors.Is(err, protocol.ErrLost) && !errors.Is(err, protocol.ErrUncertain):
			return err
		}
	}
}

// fail reports whether a run of the key has to fail.
func (b *onceBook) fail(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fails[key]--
	return b.fails[key] >= 0
}

func (b *onceBook) note(key string, token int64, ran bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case ran && err == nil:
		b.recorded[key] = append(b.recorded[key], token)
	case ran && !errors.Is(err, protocol.ErrUncertain):
		b.lost[key] = append(b.lost[key], token)
	}
}

// check compares what runs were told with what is recorded.
func (b *onceBook) check(ctx context.Context, c *protocol.Client, o runner, path, key string) error {
	ran, err := o.Do(ctx, key, func(context.Context, sim.Grant) error { return nil })
	if ran || err != nil {
		return fmt.Errorf("a key that is done: %t, %w", ran, err)
	}
	s, err := c.Session(ctx)
	if err != nil {
		return err
	}
	data, _, err := s.Get(ctx, path+"/done/"+key)
	if err != nil {
		return err
	}
	var record struct{ Token int64 }
	if err := json.Unmarshal(data, &record); err != nil {
		return err
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	for _, token := range b.recorded[key] {
		if token != record.Token {
			return fmt.Errorf("run %d was told that it is recorded, %d is", token, record.Token)
		}
	}
	for _, token := range b.lost[key] {
		if token == record.Token {
			return fmt.Errorf("run %d was told that it is not recorded", token)
		}
	}
	return nil
}
