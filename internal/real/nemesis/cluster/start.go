package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/must"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/launch"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/reach"
)

// Start starts an ensemble and returns when all its members serve. If there's neither Docker nor a
// local ZooKeeper, its error says so.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	if config.Members < 3 {
		return nil, fmt.Errorf("cluster: an ensemble has at least 3 members, got %d", config.Members)
	}
	c := &Cluster{config: config, grace: time.Minute}
	if err := must.Try(func() { c.start(ctx) }); err != nil {
		return nil, fmt.Errorf("cluster: %w", errors.Join(err, c.Close()))
	}
	return c, nil
}

// start fails by package must. Close ends whatever it has started by then.
func (c *Cluster) start(ctx context.Context) {
	must.Succeed(os.MkdirAll(c.config.Dir, 0o755))
	launcher := must.Get(launch.Find())
	for id := 1; id <= c.config.Members; id++ {
		c.members = append(c.members, &member{id: id, at: must.Get(reach.NewPlace(launcher.Bind()))})
	}
	must.Succeed(c.launch(launcher))
	must.Succeed(c.Heal(ctx)) // which also waits until the ensemble serves and commits
	c.version = must.Get(reach.AskReport(c.members[0].addr())).Version

	// Some faults need tools, and others need a newer ZooKeeper.
	c.missing = c.lookForTools()
	err := c.refusal()
	if err != nil {
		c.missing["reconfig"] = "the ensemble does not let its list of members change: " + err.Error()
	}
	if errors.Is(err, errTooOld) {
		c.missing["containers"] = "empty parents are not removed: " + err.Error()
	}
}

// launch connects all members and starts them, all at the same time.
func (c *Cluster) launch(launcher launch.Launcher) error {
	// Links must listen before the members start, because members dial at once.
	for _, from := range c.members {
		for _, to := range c.members {
			if from != to {
				if err := c.wireMembers(from, to); err != nil {
					return err
				}
			}
		}
	}

	return each(c.members, func(m *member) (err error) {
		m.server, err = launch.Start(launcher, c.spec(m))
		return err
	})
}

// wireMembers makes the wire over which a member dials another. It listens on the other's ports, at
// the address that the dialling member's hosts file has for it.
func (c *Cluster) wireMembers(from, to *member) error {
	w := c.network.add(from.end(), to.end())
	for _, port := range []int{to.at.Quorum, to.at.Election} {
		if _, err := w.link.Listen(fmt.Sprintf("%s:%d", from.hostOf(to), port), reach.Local(port)); err != nil {
			return err // on systems other than Linux, 127.0.0.0/8 isn't complete
		}
	}
	return nil
}

// diskSize is how much a member can write. (A day's log doesn't fit, but a member discards old logs
// when it starts.)
const diskSize = 128 << 20

// spec describes a member. All members have the same list of members by name. Each has its own
// hosts file, where the other names lead to its links.
func (c *Cluster) spec(m *member) launch.Spec {
	const syncLimit = 10 // a leader that is cut off answers for 5 s, longer than clients' timeouts
	config := append(launch.Config("127.0.0.1", m.at.Client, syncLimit),
		"snapCount=20000",
		"autopurge.purgeInterval=1", // in hours, and at each start
		"standaloneEnabled=false",
		"reconfigEnabled=true",
	)
	hosts := []string{"127.0.0.1 localhost"}
	for _, peer := range c.members {
		config = append(config, peer.line())
		hosts = append(hosts, m.hostOf(peer)+" "+peer.name())
	}

	return launch.Spec{
		ID:     m.id,
		Config: config,
		JVMFlags: []string{
			"-Djdk.net.hosts.file={dir}/hosts",
			"-Dznode.container.checkIntervalMs=1000",
			"-Dzookeeper.DigestAuthenticationProvider.superDigest=" + superDigest,
		},
		Files:    map[string][]byte{"hosts": []byte(strings.Join(hosts, "\n") + "\n")},
		Ports:    []int{m.at.Client, m.at.Quorum, m.at.Election},
		DiskSize: diskSize,
		Traced:   true,
	}
}

// lookForTools returns the kinds of faults for which the members lack a tool.
func (c *Cluster) lookForTools() map[string]string {
	missing := make(map[string]string)
	// All members are alike, so ask the first.
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
	// timeout ends strace with status 124, unless strace fails first.
	lacks("strace is missing, or may not trace the server",
		`timeout 1 strace -qq -o /dev/null -e trace=none -p $server; [ $? -eq 124 ]`, "disk-slow")
	lacks("libfaketime is missing", "ls "+libfaketime, "clock-jump", "clock-rate")
	return missing
}

// Heal undoes all faults and waits until all members serve and vote, one of them leads and commits,
// and all others are synced with it. It must not be called while Inject runs.
func (c *Cluster) Heal(ctx context.Context) error {
	c.network.clear()
	if err := each(c.members, c.repair); err != nil {
		return fmt.Errorf("heal: %w", err)
	}

	// A member can have ended by itself, or be in a state that only a restart ends. (If the
	// followers of a 3.8.0 leader have left it and come back, it may never commit anything again.)
	for {
		waiting, cancel := context.WithTimeout(ctx, c.grace)
		err := reach.Poll(waiting, c.reunite)
		cancel()
		var stuck *member
		if leader := c.leader(); err == nil && leader != nil {
			if err = leader.commits(); err == nil {
				return nil
			}
			// This leader serves but commits nothing.
			stuck = leader
		}
		if ctx.Err() != nil {
			return fmt.Errorf("heal: %w", err)
		}

		reports := c.reports()
		for _, m := range c.members {
			if _, serves := reports[m]; serves && m != stuck {
				continue
			}
			c.config.Log("%v still does not serve or commit, and is restarted: %v", m, err)
			if err := m.restart(); err != nil {
				return fmt.Errorf("heal: %v: %w", m, err)
			}
		}
	}
}

// repair undoes everything that a fault may have left of a member.
func (c *Cluster) repair(m *member) error {
	if err := m.shell(unslow + "; rm -f full env clock"); err != nil {
		return err
	}
	if m.dead() {
		// A process that ended by itself is a zombie until it is killed.
		return errors.Join(m.kill(), m.revive())
	}
	return m.resume()
}

// Close ends and removes all members. The logs stay.
func (c *Cluster) Close() error {
	err := each(c.members, func(m *member) error {
		if m.server == nil {
			return nil
		}
		// The log goes with the member, so copy it first.
		err := errors.Join(m.copyLog(c.config.Dir), m.server.End())
		m.at.Leave()
		return err
	})
	c.network.close()
	return err
}
