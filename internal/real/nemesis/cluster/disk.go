package cluster

import (
	"errors"
	"fmt"
	"time"
)

// diskFaults are faults of members' disks.
var diskFaults = map[string]func(*injection) error{
	"disk-full": (*injection).fillDisks,
	"disk-slow": (*injection).slowDisks,
}

// fillDisks fills the file systems of a minority. Each of these members fails at its next write,
// and goes on failing. It is killed before there's space again, because ZooKeeper doesn't promise
// that a process can write to its log after a failure.
func (i *injection) fillDisks() error {
	members, err := i.claim(1 + i.r.IntN(i.minority()))
	if err != nil {
		return err
	}
	i.say("the disks of members %v are full", ids(members))
	err = each(members, func(m *member) error {
		return m.shell(`dd if=/dev/zero of=full bs=64k 2>/dev/null; dd if=/dev/zero of=full bs=1 oflag=append conv=notrunc 2>/dev/null; true`)
	})
	if err == nil {
		i.hold()
	}

	return errors.Join(err, each(members, func(m *member) error {
		if err := m.kill(); err != nil {
			return err
		}
		return errors.Join(m.shell("rm -f full"), m.revive())
	}))
}

// revive starts a dead server. On a full disk it may have begun a log without even a header. Such a
// log has no transactions, but ZooKeeper 3.8.0 doesn't start with it (ZOOKEEPER-2332). So we remove
// it, as an operator would have to.
func (m *member) revive() error {
	return errors.Join(m.shell("find data -name 'log.*' -size -16c -delete"), m.start())
}

// slow makes each forced write of a server take longer, by a number of microseconds.
const slow = `{ strace -qq -f -o /dev/null -p $server -e trace=fsync,fdatasync ` +
	`-e inject=fsync,fdatasync:delay_enter=%d & echo $! >slow; }`

// unslow ends slow, if it has begun.
const unslow = `{ [ ! -e slow ] || kill $(cat slow) 2>/dev/null; rm -f slow; }`

// slowDisks slows the forced writes of one member, or more, or all. (Tracing slows everything else
// too.)
func (i *injection) slowDisks() error {
	members, err := i.claim(1 + i.r.IntN(len(i.members)))
	if err != nil {
		return err
	}
	delay := i.between(50*time.Millisecond, time.Second)
	i.say("each forced write of members %v takes %v more", ids(members), delay.Round(time.Millisecond))
	err = each(members, func(m *member) error { return m.shell(slow, delay.Microseconds()) })
	if err == nil {
		i.hold()
	}
	return errors.Join(err, each(members, func(m *member) error { return m.shell(unslow) }))
}

// lookForTools returns the kinds of faults for which the members lack a tool.
func (c *Cluster) lookForTools() map[string]string {
	missing := make(map[string]string)
	m := c.members[0]
	lacks := func(reason, code string, kinds ...string) {
		if m.shell("%s", code) != nil {
			for _, kind := range kinds {
				missing[kind] = reason
			}
		}
	}

	lacks("members have no file system of their own, which takes root or Docker",
		fmt.Sprintf(`[ "$(df -Pk . | awk 'NR == 2 { print $2 }')" -le %d ]`, diskSize>>10), "disk-full")
	lacks("strace is missing, or may not trace the server",
		`timeout 1 strace -qq -o /dev/null -e trace=none -p $server; [ $? -eq 124 ]`, "disk-slow")
	lacks("libfaketime is missing", "ls "+libfaketime, "clock-jump", "clock-rate", "clock-fast")
	return missing
}
