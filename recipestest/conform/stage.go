package conform

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// A stage has three processes with a lock each. A scenario is played on it.
type stage struct {
	world   *sim.World
	clients []*sim.Client
	locks   []Lock
	history *sim.Exclusive
	grants  atomic.Int64 // tokens for a lock without tokens
}

func newStage(w *sim.World, lock New) *stage {
	w.Watches = 1000 // how many watches it sets is the lock's own business
	s := &stage{world: w, clients: w.Clients(3), history: w.Exclusive("the lock")}
	w.Operator() // while it can connect
	for _, c := range s.clients {
		s.locks = append(s.locks, lock(w, c))
	}
	return s
}

// timeouts returns n session timeouts.
func (s *stage) timeouts(n int) time.Duration { return time.Duration(n) * s.world.Timeout }

// soon is how many session timeouts anything that must happen may take.
const soon = 5

// A grant is a Held for a history.
type grant struct {
	Held
	token int64
}

func (g grant) Token() int64          { return g.token }
func (g grant) Done() <-chan struct{} { return nil }

// Err returns nil if the lock has no Err.
func (g grant) Err() error {
	if g.Held.Err == nil {
		return nil
	}
	return g.Held.Err()
}

// call calls Acquire for a process. If Acquire returns late, call returns an error.
func (s *stage) call(ctx context.Context, process int, limit time.Duration) (grant, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	type outcome struct {
		held Held
		err  error
	}

	result := make(chan outcome, 1)
	go func() {
		held, err := s.locks[process].Acquire(ctx)
		result <- outcome{held, err}
	}()

	timer := time.NewTimer(limit + s.world.Timeout)
	defer timer.Stop()
	select {
	case r := <-result:
		if r.err != nil {
			return grant{}, r.err
		}
		g := grant{Held: r.held}
		if g.Held.Token != nil {
			g.token = g.Held.Token()
		} else {
			g.token = s.grants.Add(1)
		}
		return g, nil
	case <-timer.C:
		return grant{}, fmt.Errorf("%w %v after its ctx has ended", errLate, s.world.Timeout)
	}
}

var errLate = errors.New("a call of Acquire has not returned")

// acquire acquires the lock for a process, which must succeed.
func (s *stage) acquire(ctx context.Context, process int) (grant, error) {
	g, err := s.call(ctx, process, s.timeouts(soon))
	if err != nil {
		return g, fmt.Errorf("%s cannot acquire the lock, which is free: %w", s.clients[process].Name, err)
	}
	return g, nil
}

// persevere is acquire for a process that meets faults: it calls again after an error.
func (s *stage) persevere(ctx context.Context, process int) (g grant, err error) {
	for range 5 {
		if g, err = s.call(ctx, process, s.timeouts(soon)); err == nil || errors.Is(err, errLate) {
			break
		}
		time.Sleep(s.world.Timeout / 10)
	}
	if err != nil {
		return g, fmt.Errorf("%s cannot acquire the lock, called again and again: %w", s.clients[process].Name, err)
	}
	return g, nil
}

// release gives the lock back. After an error it calls again, unless the lock is lost.
func (s *stage) release(ctx context.Context, g grant) error {
	for range 3 {
		result := make(chan error, 1)
		ctx, cancel := context.WithTimeout(ctx, s.timeouts(soon))
		go func() { result <- g.Release(ctx) }()
		select {
		case err := <-result:
			cancel()
			if err == nil || g.Err() != nil {
				return nil
			}
		case <-time.After(s.timeouts(soon + 1)):
			cancel()
			return errors.New("a call of Release has not returned in time")
		}
		time.Sleep(s.world.Timeout / 10)
	}

	return nil // the next process finds out whether the lock is free
}

// cycle acquires the lock for a process, and gives it back.
func (s *stage) cycle(ctx context.Context, process int) error {
	g, err := s.acquire(ctx, process)
	if err != nil {
		return err
	}
	return s.release(ctx, g)
}

// turns makes a process hold the lock n times. Each time goes into the history.
func (s *stage) turns(ctx context.Context, process, n int) error {
	c := s.clients[process]
	for range n {
		c.Sleep(ctx, c.Upto(s.world.Timeout/2))
		called := time.Now()
		g, err := s.persevere(ctx, process)
		if err != nil {
			return err
		}
		turn := s.history.Begin(c, called, g)
		turn.Keep(c.Upto(s.world.Timeout / 2))
		if err := turn.End(s.release(ctx, g)); err != nil {
			return err
		}
	}

	return nil
}

// learns returns an error if a holder doesn't find out in time that it has lost the lock.
func (s *stage) learns(g grant, limit time.Duration) error {
	for began := time.Now(); g.Err() == nil; time.Sleep(s.world.Timeout / 50) {
		if time.Since(began) > limit {
			return fmt.Errorf("the holder has not learned within %v that it lost the lock", limit)
		}
	}
	return nil
}

// nodes returns the ephemeral nodes at or below the path, with their sessions.
func (s *stage) nodes(ctx context.Context) (map[string]int64, error) {
	session, err := s.world.Operator().Session(ctx)
	if err != nil {
		return nil, err
	}
	all := make(map[string]int64)
	var walk func(path string) error
	walk = func(path string) error {
		names, stat, err := session.Conn().Children(path)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return nil
		case err != nil:
			return err
		case stat.EphemeralOwner != 0:
			all[path] = stat.EphemeralOwner
		}
		for _, name := range names {
			if err := walk(path + "/" + name); err != nil {
				return err
			}
		}
		return nil
	}

	return all, walk(s.world.Path)
}

// expire ends the sessions of all nodes.
func (s *stage) expire(ctx context.Context) error {
	all, err := s.nodes(ctx)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("the holder has no ephemeral node below the path")
	}

	ended := make(map[int64]bool)
	for _, session := range all {
		if !ended[session] {
			s.world.Server.ExpireSession(session)
			ended[session] = true
		}
	}

	return nil
}

// deleteAll deletes nodes as an operator would.
func (s *stage) deleteAll(ctx context.Context, nodes map[string]int64, except map[string]int64) error {
	session, err := s.world.Operator().Session(ctx)
	if err != nil {
		return err
	}
	for node := range nodes {
		if _, ok := except[node]; ok {
			continue
		}
		if err := session.Conn().Delete(node, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}

	return nil
}
