package cluster

import (
	"errors"
	"time"
)

// fillDisks fills the file systems of a minority. Each of these members fails at its next write,
// and goes on failing. It is killed before there's space again, because ZooKeeper doesn't promise
// that a process can write to its log after a failure.
func fillDisks(i *injection, members []*member) error {
	i.say("the disks of members %v are full", ids(members))
	return i.during(members, func(m *member) error {
		// First large blocks and then single bytes, so that even a short write fails.
		return m.shell(`dd if=/dev/zero of=full bs=64k 2>/dev/null; dd if=/dev/zero of=full bs=1 oflag=append conv=notrunc 2>/dev/null; true`)
	}, func(m *member) error {
		return errors.Join(m.kill(), m.shell("rm -f full"), m.revive())
	})
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
func slowDisks(i *injection, members []*member) error {
	delay := i.between(50*time.Millisecond, time.Second)
	i.say("each forced write of members %v takes %v more", ids(members), delay.Round(time.Millisecond))
	return i.during(members,
		func(m *member) error { return m.shell(slow, delay.Microseconds()) },
		func(m *member) error { return m.shell(unslow) })
}
