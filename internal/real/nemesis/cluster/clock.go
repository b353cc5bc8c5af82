package cluster

import (
	"errors"
	"fmt"
	"time"
)

const libfaketime = "/usr/lib/*/faketime/libfaketimeMT.so.1"

// ownClock makes a server take its clocks from the file clock, which begins as given. The other
// parameter says which clocks.
const ownClock = `echo '%s' >clock; { echo LD_PRELOAD=$(ls ` + libfaketime + `); echo %s; ` +
	`echo FAKETIME_TIMESTAMP_FILE=$PWD/clock FAKETIME_CACHE_DURATION=1; ` +
	`echo export LD_PRELOAD FAKETIME_TIMESTAMP_FILE FAKETIME_CACHE_DURATION ` +
	`FAKETIME_DONT_FAKE_MONOTONIC FAKETIME_FORCE_MONOTONIC_FIX; } >env`

// Without the second variable, a JVM's waits end too early.
const (
	wallClock = "FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_FORCE_MONOTONIC_FIX=0"
	allClocks = "FAKETIME_FORCE_MONOTONIC_FIX=1"
)

// withClocks starts members with their own clocks, and takes these away after during. (A member
// gets its own clock when it starts, so it is restarted at the beginning and at the end.)
func withClocks(i *injection, members []*member, clock, which string, during func() error) error {
	err := each(members, func(m *member) error {
		return errors.Join(m.shell(ownClock, clock, which), m.restart())
	})
	if err == nil {
		err = each(members, i.awaitServing)
	}
	if err == nil {
		err = during()
	}
	// Undo the fault even if a step of it has failed.
	return errors.Join(err, each(members, func(m *member) error {
		return errors.Join(m.shell("rm -f env clock"), m.restart())
	}))
}

// jumpClocks sets wall clocks forward and back, by up to a day. (No system lets its monotonic clock
// jump.)
func jumpClocks(i *injection, members []*member) error {
	return withClocks(i, members, "+0", wallClock, func() error {
		return i.forAWhile(func() error {
			offset := i.between(-24*time.Hour, 24*time.Hour)
			if i.r.IntN(2) == 0 {
				offset = i.between(-10*time.Second, 10*time.Second)
			}
			i.say("the wall clocks of members %v are set to %+.3f s", ids(members), offset.Seconds())
			// mv replaces the file at once, so no server reads half of it.
			err := each(members, func(m *member) error {
				return m.shell("echo '%+.3f' >clock.new; mv clock.new clock", offset.Seconds())
			})
			i.sleep(i.between(time.Second, 5*time.Second))
			return err
		})
	})
}

// driftClocks makes all clocks of members run fast by a few per cent (which the recipes allow), or
// slow by much more (which they also survive).
func driftClocks(i *injection, members []*member) error {
	rate := 1 + 0.05*i.r.Float64()
	if i.r.IntN(2) == 0 {
		rate = 0.5 + 0.5*i.r.Float64()
	}
	i.say("the clocks of members %v run at %.3f of their rate", ids(members), rate)
	return withClocks(i, members, fmt.Sprintf("+0 x%.3f", rate), allClocks, func() error {
		i.hold()
		return nil
	})
}
