package conform

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/must"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// A stage has three processes with a lock each. A scenario is played on it. Its methods fail by
// package must.
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

// call calls Acquire for a process. Acquire may fail, but not return late.
func (s *stage) call(ctx context.Context, process int, limit time.Duration) (grant, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	type outcome struct {
		held Held
		err  error
	}

	result := make(chan outcome, 1)
	// Acquire may never return.
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
		must.Fail("%s: a call of Acquire has not returned %v after its ctx has ended",
			s.clients[process].Name, s.world.Timeout)
		panic("unreachable")
	}
}

// acquire acquires the lock for a process. That must succeed.
func (s *stage) acquire(ctx context.Context, process int) grant {
	g, err := s.call(ctx, process, s.timeouts(soon))
	if err != nil {
		must.Fail("%s cannot acquire the lock, which is free: %w", s.clients[process].Name, err)
	}
	return g
}

// persevere is acquire for a process that meets faults: it calls again after an error.
func (s *stage) persevere(ctx context.Context, process int) (g grant) {
	var err error
	for range 5 {
		if g, err = s.call(ctx, process, s.timeouts(soon)); err == nil {
			return g
		}
		time.Sleep(s.world.Timeout / 10)
	}
	must.Fail("%s cannot acquire the lock, called again and again: %w", s.clients[process].Name, err)
	return g
}

// release gives the lock back. After an error it calls again (unless the lock is lost). If all
// calls fail, the next process finds out whether the lock is free.
func (s *stage) release(ctx context.Context, g grant) {
	for range 3 {
		result := make(chan error, 1)
		ctx, cancel := context.WithTimeout(ctx, s.timeouts(soon))
		go func() { result <- g.Release(ctx) }()
		select {
		case err := <-result:
			cancel()
			// A lost lock needs no release.
			if err == nil || g.Err() != nil {
				return
			}
		case <-time.After(s.timeouts(soon + 1)):
			cancel()
			must.Fail("a call of Release has not returned in time")
		}
		time.Sleep(s.world.Timeout / 10)
	}
}

// cycle acquires the lock for a process and gives it back.
func (s *stage) cycle(ctx context.Context, process int) { s.release(ctx, s.acquire(ctx, process)) }

// turns makes a process hold the lock n times. Each time goes into the history.
func (s *stage) turns(ctx context.Context, process, n int) {
	c := s.clients[process]
	for range n {
		c.Sleep(ctx, c.Upto(s.world.Timeout/2))
		called := time.Now()
		g := s.persevere(ctx, process)
		turn := s.history.Begin(c, called, g)
		turn.Keep(c.Upto(s.world.Timeout / 2))
		must.Succeed(turn.End(must.Try(func() { s.release(ctx, g) })))
	}
}

// learns fails if a holder doesn't find out in time that it has lost the lock.
func (s *stage) learns(g grant, limit time.Duration) {
	for began := time.Now(); g.Err() == nil; time.Sleep(s.world.Timeout / 50) {
		if time.Since(began) > limit {
			must.Fail("the holder has not learned within %v that it lost the lock", limit)
		}
	}
}

// nodes returns the ephemeral nodes at or below the path, with their sessions.
func (s *stage) nodes(ctx context.Context) map[string]int64 {
	session := must.Get(s.world.Operator().Session(ctx))
	all := make(map[string]int64)
	var walk func(path string)
	walk = func(path string) {
		names, stat, err := session.Conn().Children(path)
		if errors.Is(err, zk.ErrNoNode) {
			return // the node is gone in the meantime
		}
		must.Succeed(err)
		if stat.EphemeralOwner != 0 {
			all[path] = stat.EphemeralOwner
		}
		for _, name := range names {
			walk(path + "/" + name)
		}
	}
	walk(s.world.Path)
	return all
}

// expire ends the sessions of all nodes.
func (s *stage) expire(ctx context.Context) {
	all := s.nodes(ctx)
	if len(all) == 0 {
		must.Fail("the holder has no ephemeral node below the path")
	}

	// A session can have several nodes.
	ended := make(map[int64]bool)
	for _, session := range all {
		if !ended[session] {
			s.world.Server.ExpireSession(session)
			ended[session] = true
		}
	}
}

// deleteAll deletes nodes as an operator would.
func (s *stage) deleteAll(ctx context.Context, nodes map[string]int64, except map[string]int64) {
	session := must.Get(s.world.Operator().Session(ctx))
	for node := range nodes {
		if _, ok := except[node]; ok {
			continue
		}
		if err := session.Conn().Delete(node, -1); !errors.Is(err, zk.ErrNoNode) {
			must.Succeed(err)
		}
	}
}
