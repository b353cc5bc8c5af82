package cluster

import (
	"errors"
	"fmt"
	"time"
)

// killed kills members (kill -9), and starts them at the end.
func killed(i *injection, members []*member) error {
	i.say("members %v are killed", ids(members))
	return i.during(members, (*member).kill, (*member).start)
}

// paused freezes members (SIGSTOP). Their sockets stay open.
func paused(i *injection, members []*member) error {
	i.say("members %v are paused", ids(members))
	return i.during(members, (*member).pause, (*member).resume)
}

// flicker freezes a member for moments, again and again. So the member is slow rather than gone.
func flicker(i *injection, members []*member) error {
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
func changeLeaders(i *injection) error {
	changes := 0
	err := i.forAWhile(func() error {
		if err := i.awaitLeader(nil); err != nil {
			return err
		}
		defer i.release()
		claimed, err := theLeader(i)
		if err != nil {
			return err
		}
		changes++
		leader := claimed[0]
		return errors.Join(leader.kill(), i.awaitLeader(leader), leader.start())
	})
	i.say("leaders are killed, each as soon as it leads: %d of them", changes)
	return err
}

// deposeLeader splits the cluster like splitBrain, and lets the other members know. So they elect a
// leader long before the old leader notices that it has no quorum. The split must not end before
// that: in one run where it did, the others joined the old leader again. It had proposals without a
// quorum, and (being ZooKeeper 3.8.0) never committed anything after that.
func deposeLeader(i *injection, claimed []*member) error {
	leader := claimed[0]
	// No other fault may have members that must elect a leader.
	if _, err := i.claim(len(i.members) - 1); err != nil {
		return err
	}

	remove := i.network.impose(cutOffWithHolders(i, leader))
	defer remove()
	// The others notice at once, and the old leader doesn't.
	i.network.resetDiallers(leader.end())

	if err := i.awaitLeader(leader); err != nil {
		return err
	}
	i.sleep(i.lasts + expiry)
	return nil
}

// expiry is how long a new leader takes to expire sessions with the nemesis's timeout.
const expiry = 7 * time.Second

// restartAll restarts one member after the other, and waits until each serves.
func restartAll(i *injection, members []*member) error {
	i.say("members %v are restarted, one after the other", ids(members))
	// Half of the time is for pauses, and the rest is for starting.
	pause := i.lasts / time.Duration(2*len(members))
	for _, m := range members {
		if err := m.kill(); err != nil {
			return err
		}
		i.sleep(pause)
		if err := m.start(); err != nil {
			return err
		}

		if err := i.awaitServing(m); err != nil {
			return fmt.Errorf("%v after its restart: %w", m, err)
		}
		if i.ctx.Err() != nil {
			return nil
		}
	}

	return nil
}
