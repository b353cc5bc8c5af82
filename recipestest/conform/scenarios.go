package conform

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// A scenario is one test that a lock must pass.
type scenario struct {
	name  string
	seeds int // how many schedules with drawn faults; 0: play once, without
	play  func(ctx context.Context, s *stage, process int) error
	alone bool // play runs once, and not in each process
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
				return sc.play(ctx, s, i)
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

func contend(ctx context.Context, s *stage, process int) error { return s.turns(ctx, process, 3) }

// endedContext calls Acquire with a ctx that has ended.
func endedContext(ctx context.Context, s *stage, _ int) error {
	done, cancel := context.WithCancel(ctx)
	cancel()
	if g, err := s.call(done, first, s.timeouts(soon)); err == nil {
		return errors.Join(errors.New("a call of Acquire succeeds though its ctx had ended"), s.release(ctx, g))
	} else if errors.Is(err, errLate) {
		return err
	}
	return s.cycle(ctx, second)
}

// endedRelease calls Release with a ctx that has ended, and again.
func endedRelease(ctx context.Context, s *stage, _ int) error {
	g, err := s.acquire(ctx, first)
	if err != nil {
		return err
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if g.Release(done) == nil { // then nothing may be left to do
		return s.cycle(ctx, second)
	}
	return errors.Join(s.release(ctx, g), s.cycle(ctx, second))
}

// impatient makes the second process give up while the first one holds the lock.
func impatient(ctx context.Context, s *stage, _ int) error {
	g, err := s.acquire(ctx, first)
	if err != nil {
		return err
	}
	if _, err := s.call(ctx, second, s.world.Timeout); err == nil {
		return errors.New("two holders")
	} else if errors.Is(err, errLate) {
		return err
	}

	if err := s.release(ctx, g); err != nil {
		return err
	}
	return s.cycle(ctx, third)
}

// outage makes a process call while its network is silent.
func outage(ctx context.Context, s *stage, _ int) error {
	link := s.clients[first].Link
	link.Stall()
	g, err := s.call(ctx, first, s.world.Timeout/4)
	link.Heal()
	if errors.Is(err, errLate) {
		return err
	}
	if err == nil {
		return errors.Join(errors.New("a call of Acquire succeeds without a server"), s.release(ctx, g))
	}
	return s.cycle(ctx, second)
}

// cutOff keeps all packets from a holder until the next process is granted the lock.
func cutOff(ctx context.Context, s *stage, _ int) error {
	before, err := s.acquire(ctx, first)
	if err != nil {
		return err
	}
	link := s.clients[first].Link
	link.Stall()
	defer link.Heal()
	after, err := s.acquire(ctx, second)
	if err != nil {
		return err
	}

	if before.Err() == nil && after.Err() == nil {
		return errors.New("two holders: the one that is cut off does not know that it has lost the lock")
	}
	if after.token <= before.token {
		return fmt.Errorf("token %d after %d", after.token, before.token)
	}

	return s.release(ctx, after)
}

// expired ends the session of a holder by force.
func expired(ctx context.Context, s *stage, _ int) error {
	g, err := s.acquire(ctx, first)
	if err != nil {
		return err
	}
	if err := s.expire(ctx); err != nil {
		return err
	}
	return errors.Join(s.learns(g, s.timeouts(2)), s.cycle(ctx, second))
}

// holderDeleted deletes the nodes of a holder.
func holderDeleted(ctx context.Context, s *stage, _ int) error {
	g, err := s.acquire(ctx, first)
	if err != nil {
		return err
	}
	all, err := s.nodes(ctx)
	if err != nil {
		return err
	}

	if err := s.deleteAll(ctx, all, nil); err != nil {
		return err
	}
	return errors.Join(s.learns(g, s.timeouts(2)), s.cycle(ctx, second))
}

// waiterDeleted deletes the nodes of a waiting process that has another waiter behind it.
func waiterDeleted(ctx context.Context, s *stage, _ int) error {
	g, err := s.acquire(ctx, first)
	if err != nil {
		return err
	}
	held, err := s.nodes(ctx)
	if err != nil {
		return err
	}

	ended := make(chan error, 2)
	wait := func(process int) {
		go func() { ended <- s.turns(ctx, process, 1) }()
		time.Sleep(s.world.Timeout)
	}
	wait(second)
	waiting, err := s.nodes(ctx)
	if err != nil {
		return err
	}

	wait(third)
	if err := s.deleteAll(ctx, waiting, held); err != nil {
		return err
	}
	return errors.Join(s.release(ctx, g), <-ended, <-ended)
}

// nextSession makes a process whose session was lost hold the lock again.
func nextSession(ctx context.Context, s *stage, _ int) error {
	g, err := s.acquire(ctx, first)
	if err != nil {
		return err
	}
	if err := s.expire(ctx); err != nil {
		return err
	}

	time.Sleep(s.timeouts(2))
	if err := s.release(ctx, g); err != nil {
		return err
	}
	again, err := s.persevere(ctx, first)
	if err != nil {
		return err
	}

	return s.release(ctx, again)
}

// foreignNodes creates foreign nodes at the path.
func foreignNodes(ctx context.Context, s *stage, _ int) error {
	session, err := s.world.Operator().Session(ctx)
	if err != nil {
		return err
	}
	if _, err := session.EnsurePath(ctx, s.world.Path); err != nil {
		return err
	}

	for _, name := range []string{"README", "notes-1"} {
		_, err := session.Conn().Create(s.world.Path+"/"+name, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
		if err != nil {
			return err
		}
	}

	return errors.Join(s.cycle(ctx, first), s.cycle(ctx, second))
}

// anyStep hits a process with a fault at each packet of Acquire and Release. Its session goes on.
func anyStep(fault func(*recipestest.Link)) func(context.Context, *stage, int) error {
	return func(ctx context.Context, s *stage, _ int) error {
		const steps = 16
		link := s.clients[first].Link
		for step := 1; step <= steps; step++ {
			disarm := link.At(step, func() { fault(link) })
			g, err := s.persevere(ctx, first)
			if err == nil {
				err = s.release(ctx, g)
			}
			disarm()
			link.LoseReply(recipestest.OpAny, 0)
			if err == nil {
				err = s.cycle(ctx, second)
			}
			if err != nil {
				return fmt.Errorf("at packet %d: %w", step, err)
			}
		}
		return nil
	}
}
