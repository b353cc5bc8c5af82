package conform

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/must"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// A scenario is one test that a lock must pass.
type scenario struct {
	name  string
	seeds int                                              // how many schedules with drawn faults; 0: play once without
	play  func(ctx context.Context, s *stage, process int) // fails by package must
	alone bool                                             // play runs once (not in each process)
}

func (sc scenario) options() []sim.Option {
	if sc.seeds > 0 {
		seeds := sc.seeds
		if testing.Short() {
			seeds /= 5
		}
		return []sim.Option{sim.WithSeeds(seeds)}
	}
	return []sim.Option{sim.WithSeed(1), sim.WithFaults()}
}

func (sc scenario) simulate(lock New) func(*sim.World) {
	return func(w *sim.World) {
		s := newStage(w, lock)
		for i, c := range s.clients {
			if sc.alone && i > 0 {
				break
			}
			c.Go(func(ctx context.Context) error {
				c.Sleep(ctx, w.Timeout) // the world heals the networks when it begins
				return must.Try(func() { sc.play(ctx, s, i) })
			})
		}
	}
}

const first, second, third = 0, 1, 2 // processes

var scenarios = []scenario{
	{name: "one holder at a time", play: contend},
	{name: "ctx that has ended", play: endedContext, alone: true},
	{name: "released with a ctx that has ended", play: endedRelease, alone: true},
	{name: "ctx ends while a process waits", play: impatient, alone: true},
	{name: "ctx ends while no server answers", play: outage, alone: true},
	{name: "holder is cut off", play: cutOff, alone: true},
	{name: "holder's session expires", play: expired, alone: true},
	{name: "holder's node is deleted", play: holderDeleted, alone: true},
	{name: "waiter's node is deleted", play: waiterDeleted, alone: true},
	{name: "held again in the next session", play: nextSession, alone: true},
	{name: "foreign nodes", play: foreignNodes, alone: true},
	{name: "connection breaks at any step", play: anyStep(func(l *recipestest.Link) { l.Cut(); l.Heal() }), alone: true},
	{name: "replies are lost at any step", play: anyStep(func(l *recipestest.Link) { l.LoseReply(recipestest.OpAny, 2) }), alone: true},
	{name: "drawn faults", play: contend, seeds: 100},
}

func contend(ctx context.Context, s *stage, process int) { s.turns(ctx, process, 3) }

// endedContext calls Acquire with a ctx that has ended.
func endedContext(ctx context.Context, s *stage, _ int) {
	done, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.call(done, first, s.timeouts(soon)); err == nil {
		must.Fail("a call of Acquire succeeds though its ctx had ended")
	}
	// The call must have left nothing that keeps others out.
	s.cycle(ctx, second)
}

// endedRelease calls Release with a ctx that has ended and then again.
func endedRelease(ctx context.Context, s *stage, _ int) {
	g := s.acquire(ctx, first)
	done, cancel := context.WithCancel(ctx)
	cancel()
	if g.Release(done) != nil { // otherwise nothing may be left to do
		s.release(ctx, g)
	}
	s.cycle(ctx, second)
}

// impatient makes the second process give up while the first one holds the lock.
func impatient(ctx context.Context, s *stage, _ int) {
	g := s.acquire(ctx, first)
	// The second process gives up after a session timeout.
	if _, err := s.call(ctx, second, s.world.Timeout); err == nil {
		must.Fail("two holders")
	}
	s.release(ctx, g)
	// A process that has given up must not keep the third out.
	s.cycle(ctx, third)
}

// outage makes a process call while its network is silent.
func outage(ctx context.Context, s *stage, _ int) {
	link := s.clients[first].Link
	link.Stall()
	// If Acquire returns in time, the session survives the outage.
	_, err := s.call(ctx, first, s.world.Timeout/4)
	link.Heal()
	if err == nil {
		must.Fail("a call of Acquire succeeds without a server")
	}
	s.cycle(ctx, second)
}

// cutOff keeps all packets from a holder until the next process is granted the lock.
func cutOff(ctx context.Context, s *stage, _ int) {
	before := s.acquire(ctx, first)
	// Cut the holder off until another process holds the lock.
	link := s.clients[first].Link
	link.Stall()
	defer link.Heal()
	after := s.acquire(ctx, second)

	// From now on at most one of them may believe that it holds the lock.
	if before.Err() == nil && after.Err() == nil {
		must.Fail("two holders: the one that is cut off does not know that it has lost the lock")
	}
	if after.token <= before.token {
		must.Fail("token %d after %d", after.token, before.token)
	}

	s.release(ctx, after)
}

// expired ends the session of a holder by force.
func expired(ctx context.Context, s *stage, _ int) {
	g := s.acquire(ctx, first)
	s.expire(ctx)
	// The holder must notice, and the lock must be free again.
	s.learns(g, s.timeouts(2))
	s.cycle(ctx, second)
}

// holderDeleted deletes the nodes of a holder.
func holderDeleted(ctx context.Context, s *stage, _ int) {
	g := s.acquire(ctx, first)
	s.deleteAll(ctx, s.nodes(ctx), nil)
	s.learns(g, s.timeouts(2))
	s.cycle(ctx, second)
}

// waiterDeleted deletes the nodes of a waiting process that has another waiter behind it.
func waiterDeleted(ctx context.Context, s *stage, _ int) {
	g := s.acquire(ctx, first)
	held := s.nodes(ctx)

	// Let two processes wait, the third behind the second.
	ended := make(chan error, 2)
	wait := func(process int) {
		go func() { ended <- must.Try(func() { s.turns(ctx, process, 1) }) }()
		time.Sleep(s.world.Timeout)
	}
	wait(second)
	waiting := s.nodes(ctx)
	wait(third)
	// The second process loses its nodes and the holder keeps its own.
	s.deleteAll(ctx, waiting, held)
	s.release(ctx, g)
	// Both must still get their turns.
	must.Succeed(errors.Join(<-ended, <-ended))
}

// nextSession makes a process whose session was lost hold the lock again.
func nextSession(ctx context.Context, s *stage, _ int) {
	g := s.acquire(ctx, first)
	s.expire(ctx)
	// The client finds out and gets its next session.
	time.Sleep(s.timeouts(2))
	s.release(ctx, g)
	s.release(ctx, s.persevere(ctx, first))
}

// foreignNodes creates foreign nodes at the path.
func foreignNodes(ctx context.Context, s *stage, _ int) {
	session := must.Get(recipe.SessionOf(ctx, s.world.Operator()))
	must.Get(session.EnsurePath(ctx, s.world.Path))
	// The second name has a number, like a contender's.
	for _, name := range []string{"README", "notes-1"} {
		must.Get(session.Conn().Create(s.world.Path+"/"+name, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)))
	}

	s.cycle(ctx, first)
	s.cycle(ctx, second)
}

// anyStep hits a process with a fault at each packet of Acquire and Release. Its session goes on.
func anyStep(fault func(*recipestest.Link)) func(context.Context, *stage, int) {
	return func(ctx context.Context, s *stage, _ int) {
		const steps = 16
		link := s.clients[first].Link
		for step := 1; step <= steps; step++ {
			disarm := link.At(step, func() { fault(link) })
			err := must.Try(func() {
				s.release(ctx, s.persevere(ctx, first))
				// A fault that hasn't struck must not strike the next step.
				disarm()
				link.LoseReply(recipestest.OpAny, 0)
				// Another process shows whether anything is left.
				s.cycle(ctx, second)
			})
			if err != nil {
				must.Fail("at packet %d: %w", step, err)
			}
		}
	}
}
