package sim_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// enroll simulates clients that create some nodes in a directory, each once. After a lost answer
// they look for the node, on a server that may not know it yet unless they sync first.
func enroll(syncs bool) func(*sim.World) {
	return func(w *sim.World) {
		var wanted []string
		for _, c := range w.Clients(3) {
			var own []string
			for i := range 10 {
				own = append(own, fmt.Sprintf("%s, %d-", c.Name, i))
			}
			wanted = append(wanted, own...)
			c.Go(func(ctx context.Context) error {
				for _, prefix := range own {
					c.Sleep(ctx, c.Upto(w.Timeout))
					for enrollOnce(ctx, w, c, prefix, syncs) != nil {
						c.Sleep(ctx, w.Timeout/50)
					}
				}
				return nil
			})
		}

		w.Finally("each is there once", func(ctx context.Context) error {
			s, err := w.Operator().Session(ctx)
			if err != nil {
				return err
			}

			names, _, err := s.Conn().Children(w.Path)
			if err != nil {
				return err
			}

			for _, prefix := range wanted {
				if n := count(names, prefix); n != 1 {
					return fmt.Errorf("%s is there %d times", prefix, n)
				}
			}

			return nil
		})
	}
}

func enrollOnce(ctx context.Context, w *sim.World, c *sim.Client, prefix string, syncs bool) error {
	s, err := recipe.SessionOf(ctx, c.Client)
	if err != nil {
		return err
	}

	if syncs {
		if _, err := s.Conn().Sync(w.Path); err != nil {
			return err
		}
	}

	names, _, err := s.Conn().Children(w.Path)
	if err == zk.ErrNoNode {
		_, err = s.EnsurePath(ctx, w.Path)
	}

	if err != nil || count(names, prefix) > 0 {
		return err
	}

	_, err = s.Conn().Create(w.Path+"/"+prefix, nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
	return err
}

func count(names []string, prefix string) (n int) {
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			n++
		}
	}
	return n
}

// report simulates one client that writes numbers and announces them elsewhere, and others that
// then read.
func report(syncs bool) func(*sim.World) {
	return func(w *sim.World) {
		var announced atomic.Int64
		clients := w.Clients(3)
		clients[0].Go(func(ctx context.Context) error {
			for n := int64(1); n <= 20; n++ {
				clients[0].Sleep(ctx, w.Timeout/4)
				if s, err := recipe.SessionOf(ctx, clients[0].Client); err == nil {
					if _, err := s.EnsurePath(ctx, w.Path); err != nil {
						continue
					}
					if _, err := s.Conn().Set(w.Path, strconv.AppendInt(nil, n, 10), -1); err == nil {
						announced.Store(n)
					}
				}
			}

			return nil
		})

		for _, c := range clients[1:] {
			c.Go(func(ctx context.Context) error {
				for range 40 {
					c.Sleep(ctx, w.Timeout/8)
					if err := read(ctx, w, c, announced.Load(), syncs); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
}

func read(ctx context.Context, w *sim.World, c *sim.Client, announced int64, syncs bool) error {
	s, err := c.Session(ctx)
	if err != nil {
		return err
	}

	if syncs {
		if _, err := s.Conn().Sync(w.Path); err != nil {
			return nil // a fault
		}
	}

	data, _, err := s.Conn().Get(w.Path)
	switch {
	case errors.Is(err, zk.ErrNoNode) && announced > 0:
	case err != nil:
		return nil
	}

	if n, _ := strconv.ParseInt(string(data), 10, 64); n < announced {
		return fmt.Errorf("it reads %d after %d was announced", n, announced)
	}

	return nil
}

func TestSimFindsClientsThatDoNotSync(t *testing.T) {
	for name, test := range map[string]struct {
		simulate func(syncs bool) func(*sim.World)
		want     string
	}{
		"looking for its own node":   {enroll, " times"},
		"reading what was announced": {report, "was announced"},
	} {
		t.Run(name, func(t *testing.T) {
			f := sim.Find(t, test.simulate(false), sim.WithSeeds(1000), sim.WithFaults(sim.Lag, sim.Cut, sim.Drop))
			require.NotNil(t, f)
			require.ErrorContains(t, f.Err, test.want)
			require.Contains(t, kinds(f), sim.Lag)
			t.Log(f)
		})
		t.Run(name+" without lag", func(t *testing.T) {
			require.Nil(t, sim.Find(t, test.simulate(false), sim.WithSeeds(20), sim.WithoutFaults(sim.Lag, sim.CutTwice, sim.Stale, sim.Deposed)))
		})
		t.Run(name+" after a sync", func(t *testing.T) {
			sim.Run(t, test.simulate(true), sim.WithSeeds(20), truthfulSyncs)
		})
	}
}

// kinds returns the kinds of the faults that suffice.
func kinds(f *sim.Failure) (all []sim.Kind) {
	for _, fault := range f.Enough {
		all = append(all, fault.Kind)
	}
	return all
}
