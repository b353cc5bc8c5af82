package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/reach"
)

// The administrator may change the list of members. superDigest is the digest of "super:nemesis".
const (
	administrator = "super:nemesis"
	superDigest   = "super:NHtXWWmD3D1aHv/JHOhmrlCzksU="
)

// removeMembers removes a minority, and adds it again at the end. Half of the time these members
// are shut down meanwhile, so that their clients must move. Otherwise they follow without a vote.
func removeMembers(i *injection, all []*member) error {
	removed := all[:1+i.r.IntN(i.minority())]
	shutDown := i.r.IntN(2) == 0
	then := "go on without a vote"
	if shutDown {
		then = "are shut down"
	}
	i.say("members %v are removed from the ensemble, and %s", ids(removed), then)

	rest := i.others(removed...)
	// A reconfiguration can fail while members are starting, so try again.
	err := i.await(func() error { return i.configure(rest) })
	if err == nil && shutDown {
		err = each(removed, func(m *member) error { return m.leave(rest) })
	}
	if err == nil {
		i.hold()
	}

	if shutDown {
		err = errors.Join(err, each(removed, (*member).start))
	}
	return errors.Join(err, i.await(i.reunite))
}

// leave shuts down a removed member and gives it the configuration of a member that joins rest. A
// joining member is an observer. A voter could form a quorum of the old list of members without
// everything that rest has committed.
func (m *member) leave(rest []*member) error {
	if err := m.kill(); err != nil {
		return err
	}
	lines := []string{m.lineAs("observer")}
	for _, peer := range rest {
		lines = append(lines, peer.lineAs("participant"))
	}
	return m.shell(`rm -f zoo.cfg.dynamic*; sed -i '/^dynamicConfigFile=/d; /^server[.]/d' zoo.cfg && `+
		`for line in '%s'; do echo "$line"; done >>zoo.cfg`, strings.Join(lines, "' '"))
}

// reunite adds removed members again. It returns nil once all members vote and know it, and are
// synced with one leader. Otherwise it returns a reason.
func (c *Cluster) reunite() error {
	return errors.Join(c.configure(c.members), c.unsynced(c.members), c.uninformed())
}

// uninformed returns which members don't know yet that all vote. The leader knows first. If a
// member is killed before it has stored the list, it may not start again (its own list lacks it).
func (c *Cluster) uninformed() (err error) {
	for _, m := range c.members {
		voters, failed := m.voters()
		if failed == nil && !slices.Equal(voters, ids(c.members)) {
			failed = fmt.Errorf("members %v vote", voters)
		}
		if failed != nil && !errors.Is(failed, errTooOld) {
			err = errors.Join(err, fmt.Errorf("%v: %w", m, failed))
		}
	}
	return err
}

// configure makes these members the ensemble, if they aren't already.
func (c *Cluster) configure(members []*member) error {
	leader := c.leader()
	if leader == nil {
		return errNoLeader
	}
	now, err := leader.voters()
	if errors.Is(err, errTooOld) {
		return nil // it can't have changed
	}

	if err != nil || slices.Equal(now, ids(members)) {
		return err
	}
	return leader.reconfigure(members)
}

// errTooOld is the error of members whose version cannot change the list.
var errTooOld = errors.New("this ZooKeeper is older than 3.5")

// voters returns the numbers of the members that vote, according to m.
func (m *member) voters() ([]int, error) {
	answer, err := reach.Ask(m.addr(), "conf")
	if err != nil {
		return nil, err
	}
	var voters []int
	for line := range strings.Lines(answer) {
		var id int
		if _, err := fmt.Sscanf(line, "server.%d=", &id); err == nil && strings.Contains(line, ":participant") {
			voters = append(voters, id)
		}
	}

	if voters == nil && strings.Contains(answer, "clientPort=") { // m serves and names no members
		return nil, errTooOld
	}
	slices.Sort(voters)
	return voters, nil
}

// reconfigure asks m (the leader) to make these members the ensemble. If it returns an error, that
// may have happened anyway.
func (m *member) reconfigure(members []*member) error {
	var lines []string
	for _, member := range members {
		lines = append(lines, member.lineAs("participant"))
	}
	return m.inSession(func(conn *zk.Conn) error {
		if err := conn.AddAuth("digest", []byte(administrator)); err != nil {
			return err
		}
		_, err := conn.Reconfig(lines, -1)
		return err
	})
}

// refusal returns why members can't be removed and added here, or nil if they can. (A change to the
// same list is also a change.)
func (c *Cluster) refusal() error {
	leader := c.leader()
	if leader == nil {
		return errNoLeader
	}
	if _, err := leader.voters(); err != nil {
		return err
	}
	return leader.reconfigure(c.members)
}
