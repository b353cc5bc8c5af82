package sim_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// counting simulates clients that count a node up under a lock. The lock is hidden in withLock, and
// the simulation has no history of it. Unless the write checks the lock, a client may write what it
// has read before it lost the lock.
func counting(checks bool) func(*sim.World) {
	return func(w *sim.World) {
		path := w.Path + "-counter"
		operator, err := recipe.SessionOf(w.Context(), w.Operator())
		require.NoError(w, err)
		_, err = operator.EnsurePath(w.Context(), path)
		require.NoError(w, err)

		n := &counter{path: path}
		for _, c := range w.Clients(3) {
			m := lock.New(c.Client, w.Path)
			c.Go(func(ctx context.Context) error {
				for range 5 {
					c.Sleep(ctx, c.Upto(w.Timeout))
					withLock(ctx, m, func(held context.Context, l *lock.Lease) error {
						return n.countUp(held, w, c, l, checks)
					})
				}
				return nil
			})
		}
		w.Finally("all is counted", func(ctx context.Context) error {
			s, err := w.Operator().Session(ctx)
			if err != nil {
				return err
			}
			data, _, err := s.Conn().Get(path)
			if got, _ := strconv.Atoi(string(data)); err != nil || got < n.counted || got > n.counted+n.unknown {
				return fmt.Errorf("it is counted to %d, after %d calls and perhaps %d others: %w", got, n.counted, n.unknown, err)
			}
			return nil
		})
	}
}

func withLock(ctx context.Context, m *lock.Mutex, do func(context.Context, *lock.Lease) error) error {
	return m.Do(ctx, do)
}

// A counter knows how often it was counted up.
type counter struct {
	path             string
	mu               sync.Mutex // protects what follows
	counted, unknown int
}

func (n *counter) countUp(held context.Context, w *sim.World, c *sim.Client, l *lock.Lease, checks bool) error {
	s, err := c.Session(held)
	if err != nil {
		return err
	}
	data, _, err := s.Conn().Get(n.path)
	if err != nil {
		return err
	}
	c.Sleep(held, c.Upto(w.Timeout/50))
	if err := held.Err(); err != nil {
		return err
	}

	before, _ := strconv.Atoi(string(data))
	write := []any{&zk.SetDataRequest{Path: n.path, Data: strconv.AppendInt(nil, int64(before+1), 10), Version: -1}}
	if checks {
		write = append([]any{l.Check()}, write...)
	}
	return n.save(context.WithoutCancel(held), w, c, write)
}

// save tries until the write is done or refused. That may take it into the client's next session.
func (n *counter) save(ctx context.Context, w *sim.World, c *sim.Client, write []any) error {
	for attempts := 1; ; attempts++ {
		s, err := c.Session(ctx)
		if err != nil {
			return err
		}
		_, err = s.Conn().Multi(write...)
		n.mu.Lock()
		switch {
		case err == nil:
			n.counted++
		case err == zk.ErrNoNode && attempts > 1:
			n.unknown++ // an attempt before may have been executed
		}
		n.mu.Unlock()
		if err == nil || err == zk.ErrNoNode {
			return err
		}
		c.Sleep(ctx, w.Timeout/50)
	}
}

func TestSimFindsAMissingCheckBehindAHelper(t *testing.T) {
	f := sim.Find(t, counting(false), sim.WithSeeds(200))
	require.NotNil(t, f)
	require.ErrorContains(t, f.Err, "it is counted to")
	t.Log(f)
}

func TestSimCountsUnderAHiddenLock(t *testing.T) {
	sim.Run(t, counting(true))
}

// A lock without a line is found by the events of its holders alone.
func TestSimFindsTwoHoldersThatNoHistoryHas(t *testing.T) {
	f := sim.Find(t, func(w *sim.World) {
		for _, c := range w.Clients(2) {
			c.Go(func(ctx context.Context) error {
				c.Sleep(ctx, c.Upto(w.Timeout))
				g, err := lockAtOnce(ctx, c, w.Path)
				if err != nil {
					return err
				}
				c.Sleep(ctx, w.Timeout/4)
				g.Release(ctx)
				return nil
			})
		}
	}, sim.WithSeeds(20))
	require.NotNil(t, f)
	require.ErrorContains(t, f.Err, "has two holders, as their events say")
}

func lockAtOnce(ctx context.Context, c *sim.Client, path string) (*recipe.Grant, error) {
	r := recipe.New(c.Client, "lock", path)
	return r.Acquire(ctx, nil, func(s *recipe.Session) (*recipe.Grant, error) {
		if _, err := s.EnsurePath(ctx, path); err != nil {
			return nil, err
		}
		node := path + "/" + strings.ReplaceAll(c.Name, " ", "-")
		if err := s.Create(ctx, node, nil, zk.FlagEphemeral); err != nil {
			return nil, err
		}
		stat, err := s.Exists(ctx, node)
		if err != nil {
			return nil, err
		}
		return r.NewGrant(ctx, s, node, stat.Czxid, func(ctx context.Context, s *recipe.Session) error {
			return s.Delete(ctx, node, -1)
		})
	})
}
