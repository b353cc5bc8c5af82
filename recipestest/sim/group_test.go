package sim_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

func TestSimGroup(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		w.Watches = 1 // the watcher's, as in the simulation of elections
		had := w.Exclusive("the name")
		watcher := w.Clients(1)[0]
		w.Processes(2+w.Rand.IntN(3), func(c *sim.Client) {
			g, begins := group.New(c.Client, w.Path), c.Upto(2*w.Timeout)
			c.Go(func(ctx context.Context) error {
				c.Sleep(ctx, begins)
				return belong(ctx, w, c, g, had)
			})
		})

		stop := watch(w, group.New(watcher.Client, w.Path).Watch, func(_, _ []group.Peer) error { return nil })
		w.Finally("the name is had and seen", func(ctx context.Context) error {
			g := group.New(w.Alive()[1].Client, w.Path)
			m, err := joinWhenFree(ctx, g, w.Timeout)
			if err != nil {
				return err
			}
			time.Sleep(10 * w.Timeout)
			seen, err := stop()
			if err != nil {
				return err
			}
			peers, err := g.Members(ctx)
			if err != nil {
				return err
			}
			if len(seen) != 1 || len(peers) != 1 || fmt.Sprint(seen) != fmt.Sprint(peers) || !m.Joined() {
				return fmt.Errorf("the watcher saw %v last, but there are %v", seen, peers)
			}
			return m.Leave(ctx)
		})
	})
}

func joinWhenFree(ctx context.Context, g *group.Group, timeout time.Duration) (*group.Member, error) {
	for {
		m, err := g.TryJoin(ctx, "a", nil)
		if !errors.Is(err, group.ErrNameTaken) {
			return m, err
		}
		time.Sleep(timeout / 10)
	}
}

// belong joins for some time, in which it may lose its name and have it again.
func belong(ctx context.Context, w *sim.World, c *sim.Client, g *group.Group, had *sim.Exclusive) error {
	called := time.Now()
	m, err := g.Join(ctx, "a", nil)
	if err != nil {
		return err
	}

	for end := time.Now().Add(c.Upto(6 * w.Timeout)); time.Now().Before(end) && ctx.Err() == nil; {
		select {
		case <-m.Changes():
		default:
		}
		s := &stretch{member: m}
		if err := s.read(ctx, c, w.Path); err != nil || s.Err() != nil {
			c.Sleep(ctx, w.Timeout/50)
			continue
		}
		turn := had.Begin(c, called, s)
		called = time.Now()
		turn.Keep(time.Until(end))
		lost := s.Err()
		if lost == nil {
			lost = m.Leave(ctx)
		}
		if err := turn.End(lost); err != nil {
			return err
		}
	}
	return m.Leave(ctx)
}

// A stretch is the time from one join of a member to its loss.
type stretch struct {
	member *group.Member
	czxid  int64
}

func (s *stretch) read(ctx context.Context, c *sim.Client, path string) error {
	session, err := recipe.SessionOf(ctx, c.Client)
	if err != nil {
		return err
	}
	stat, err := session.Exists(ctx, path+"/a")
	if err == nil && (stat == nil || stat.EphemeralOwner != session.ID()) {
		err = protocol.ErrLost
	}
	if err == nil {
		s.czxid = stat.Czxid
	}
	return err
}

func (s *stretch) Token() int64          { return s.czxid }
func (s *stretch) Done() <-chan struct{} { return nil }

func (s *stretch) Err() error {
	if !s.member.Joined() || len(s.member.Changes()) > 0 {
		return protocol.ErrLost
	}
	return nil
}
