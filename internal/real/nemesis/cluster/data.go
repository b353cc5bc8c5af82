package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/reach"
)

// loseData removes the data of a minority. They come back empty.
func loseData(i *injection, members []*member) error {
	if err := killAndCheck(i, members); err != nil {
		return err
	}

	i.say("members %v have lost their data", ids(members))
	// These members are down while the fault lasts.
	return i.during(members, func(m *member) error { return m.shell("rm -rf data/version-2") }, (*member).start)
}

// amnesia restarts a minority with the data that it had when the fault began.
func amnesia(i *injection, members []*member) error {
	// Copy now and bring the copy back at the end. Writes in between are forgotten.
	if err := each(members, (*member).copyData); err != nil {
		return err
	}

	i.hold()
	if err := killAndCheck(i, members); err != nil {
		return err
	}
	i.say("members %v have forgotten the last %v", ids(members), i.lasts)
	return errors.Join(each(members, (*member).recallData), each(members, (*member).start))
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
//
// If a member comes back without data that it has acknowledged, it breaks an assumption of the
// ensemble: any two majorities share a member that knows. Still, no committed write is lost if
// every member that remembers has everything that is committed between the member's death and its
// return. The reason: suppose that at most f of 2f+1 members forget. Then each majority has at
// least one member that remembers, and it knows everything from before. A majority knows everything
// that is committed later, because the members that forgot were down or had been synced by then.
//
// So the members are killed first. Then killAndCheck waits until all others are synced with one
// leader and have applied everything it had. If members forget one after the other, each must wait
// in the same way (a member that hasn't been synced again isn't synced).
func killAndCheck(i *injection, members []*member) error {
	if err := each(members, (*member).kill); err != nil {
		return err
	}
	// The members are down, so go on even if the run ends.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(i.ctx), i.grace)
	defer cancel()
	err := reach.Poll(ctx, func() error { return i.unsynced(i.others(members...)) })
	if err == nil {
		return nil
	}
	err = fmt.Errorf("members %v may not forget now: %w", ids(members), err)
	return errors.Join(err, each(members, (*member).start))
}
