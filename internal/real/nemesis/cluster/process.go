package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/launch"
)

// processFaults are faults of members' processes.
var processFaults = map[string]func(*injection) error{
	"kill-all":        func(i *injection) error { return i.killSome(len(i.members)) },
	"kill-leader":     func(i *injection) error { return i.withLeader((*injection).killed) },
	"kill-majority":   func(i *injection) error { return i.killSome(len(i.members) - i.minority()) },
	"kill-minority":   func(i *injection) error { return i.killSome(1 + i.r.IntN(i.minority())) },
	"pause-all":       func(i *injection) error { return i.pauseSome(len(i.members)) },
	"pause-leader":    func(i *injection) error { return i.withLeader((*injection).paused) },
	"pause-minority":  func(i *injection) error { return i.pauseSome(1 + i.r.IntN(i.minority())) },
	"pause-flicker":   (*injection).flicker,
	"leader-changes":  (*injection).changeLeaders,
	"leader-deposed":  (*injection).deposeLeader,
	"restart-rolling": (*injection).restartAll,
}

func (i *injection) killSome(n int) error {
	members, err := i.claim(n)
	if err != nil {
		return err
	}
	return i.killed(members)
}

func (i *injection) pauseSome(n int) error {
	members, err := i.claim(n)
	if err != nil {
		return err
	}
	return i.paused(members)
}

func (i *injection) withLeader(do func(*injection, []*member) error) error {
	leader, err := i.claimLeader()
	if err != nil {
		return err
	}
	return do(i, []*member{leader})
}

// killed kills members (kill -9), and starts them at the end.
func (i *injection) killed(members []*member) error {
	i.say("members %v are killed", ids(members))
	if err := each(members, (*member).kill); err != nil {
		return err
	}
	i.hold()
	return each(members, (*member).start)
}

// paused freezes members (SIGSTOP). Their sockets stay open.
func (i *injection) paused(members []*member) error {
	i.say("members %v are paused", ids(members))
	err := each(members, (*member).pause)
	if err == nil {
		i.hold()
	}
	return errors.Join(err, each(members, (*member).resume))
}

// flicker freezes a member for moments, again and again. So the member is slow rather than gone.
func (i *injection) flicker() error {
	members, err := i.claim(1)
	if err != nil {
		return err
	}
	m, stop := members[0], i.between(50*time.Millisecond, time.Second)
	i.say("%v is paused for %v, and runs for up to %v, in turns", m, stop.Round(time.Millisecond), stop.Round(time.Millisecond))
	return i.forAWhile(func() error {
		if err := m.pause(); err != nil {
			return err
		}
		i.sleep(stop)
		if err := m.resume(); err != nil {
			return err
		}
		i.sleep(i.between(0, stop))
		return nil
	})
}

// changeLeaders kills one leader after the other, each as soon as it leads. A killed leader is
// started when the next one leads.
func (i *injection) changeLeaders() error {
	changes := 0
	err := i.forAWhile(func() error {
		ctx, cancel := i.limited()
		defer cancel()
		if _, err := i.awaitLeader(ctx, nil); err != nil {
			return err
		}
		leader, err := i.claimLeader()
		if err != nil {
			return err
		}
		defer i.release()

		if err := leader.kill(); err != nil {
			return err
		}
		changes++
		_, err = i.awaitLeader(ctx, leader)
		return errors.Join(err, leader.start())
	})
	i.say("leaders are killed, each as soon as it leads: %d of them", changes)
	return err
}

// deposeLeader splits the cluster like splitBrain, and lets the other members know. So they elect a
// leader long before the old leader notices that it has no quorum. The split must not end before
// that: in one run where it did, the others joined the old leader again. It had proposals without a
// quorum, and (being ZooKeeper 3.8.0) never committed anything after that.
func (i *injection) deposeLeader() error {
	leader, err := i.claimLeader()
	if err != nil {
		return err
	}
	if _, err := i.claim(len(i.members) - 1); err != nil {
		return err
	}

	remove := i.network.impose(i.cutOffWithHolders(leader))
	defer remove()
	i.network.resetDiallers(leader)

	ctx, cancel := i.limited()
	defer cancel()
	if _, err := i.awaitLeader(ctx, leader); err != nil {
		return err
	}
	i.sleep(i.lasts + expiry)
	return nil
}

// expiry is how long a new leader takes to expire sessions with the nemesis's timeout.
const expiry = 7 * time.Second

// restartAll restarts one member after the other, and waits until each serves.
func (i *injection) restartAll() error {
	members, err := i.claim(len(i.members))
	if err != nil {
		return err
	}
	i.say("members %v are restarted, one after the other", ids(members))
	pause := i.lasts / time.Duration(2*len(members))
	for _, m := range members {
		if err := m.kill(); err != nil {
			return err
		}
		i.sleep(pause)
		if err := m.start(); err != nil {
			return err
		}

		ctx, cancel := i.limited()
		err := launch.AwaitServing(ctx, m.addr())
		cancel()
		if err != nil {
			return fmt.Errorf("%v after its restart: %w", m, err)
		}
		if i.ctx.Err() != nil {
			return nil
		}
	}

	return nil
}

// limited returns a context for steps that a fault must wait for. They go on after the fault's
// context has ended, so that the fault can be undone.
func (i *injection) limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(i.ctx), launch.Timeout)
}
