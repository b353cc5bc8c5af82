package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/launch"
)

// dataFaults are members that forget.
//
// If a member comes back without data that it has acknowledged, it breaks an assumption of the
// ensemble: any two majorities share a member that knows. Still, no committed write is lost if,
// between the member's death and its return, every member that remembers has everything that is
// committed. The reason: suppose that at most f of 2f+1 members forget. Then each majority has at
// least one member that remembers, and it knows everything from before. A majority knows everything
// that is committed later, because the members that forgot were down, or had been synced by then.
//
// So forget kills the members first. Then it waits until all others are synced with one leader and
// have applied everything it had. If members forget one after the other, each must wait in the same
// way (a member that hasn't been synced again isn't synced).
var dataFaults = map[string]func(*injection) error{
	"data-lost":        (*injection).loseData,
	"amnesia":          (*injection).forget,
	"amnesia-majority": (*injection).forgetMajority,
}

// beyond are the faults that ordinary runs leave out, and why.
var beyond = map[string]string{
	"amnesia-majority": "a majority forgets what it has acknowledged, so committed writes are lost",
	"clock-fast":       "the leader's clock runs at twice the rate, so sessions end before their clients know",
}

// loseData removes the data of a minority. They come back empty.
func (i *injection) loseData() error {
	members, err := i.claim(1 + i.r.IntN(i.minority()))
	if err != nil {
		return err
	}
	if err := i.killAndCheck(members); err != nil {
		return err
	}

	i.say("members %v have lost their data", ids(members))
	err = each(members, func(m *member) error { return m.shell("rm -rf data/version-2") })
	if err == nil {
		i.hold()
	}
	return errors.Join(err, each(members, (*member).start))
}

// forget restarts a minority with the data that it had when the fault began.
func (i *injection) forget() error {
	members, err := i.claim(1 + i.r.IntN(i.minority()))
	if err != nil {
		return err
	}
	if err := each(members, (*member).copyData); err != nil {
		return err
	}

	i.hold()
	if err := i.killAndCheck(members); err != nil {
		return err
	}
	i.say("members %v have forgotten the last %v", ids(members), i.lasts)
	err = each(members, (*member).recallData)
	return errors.Join(err, each(members, (*member).start))
}

// forgetMajority restarts a majority with the data that it had when the fault began. All other
// members are down meanwhile, so that the majority goes on from that data.
func (i *injection) forgetMajority() error {
	members, err := i.claim(len(i.members))
	if err != nil {
		return err
	}
	majority := members[i.minority():]
	if err := each(majority, (*member).copyData); err != nil {
		return err
	}

	i.hold()

	i.say("members %v, a majority, have forgotten the last %v", ids(majority), i.lasts)
	err = errors.Join(each(members, (*member).kill), each(majority, (*member).recallData), each(majority, (*member).start))
	if err == nil {
		ctx, cancel := i.limited()
		defer cancel()
		err = i.awaitServing(ctx, majority)
	}

	return errors.Join(err, each(members, (*member).start))
}

// copyData copies the member's data. The process is paused, so that the files fit together.
func (m *member) copyData() error {
	if err := m.pause(); err != nil {
		return err
	}
	return errors.Join(m.shell("rm -rf old; cp -a data old"), m.resume())
}

// recallData replaces the data with the copy.
func (m *member) recallData() error { return m.shell("rm -rf data && mv old data") }

// killAndCheck kills members that will forget. It returns when all other members know everything
// the killed members knew. If that takes too long, it starts the members with their data and
// returns an error.
func (i *injection) killAndCheck(members []*member) error {
	if err := each(members, (*member).kill); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(i.ctx), i.grace)
	defer cancel()
	err := launch.Poll(ctx, func() error { return i.unsynced(i.others(members...)) })
	if err == nil {
		return nil
	}
	err = fmt.Errorf("members %v may not forget now: %w", ids(members), err)
	return errors.Join(err, each(members, (*member).start))
}
