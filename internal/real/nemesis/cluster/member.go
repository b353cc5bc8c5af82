package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/launch"
)

// A member is one server of the ensemble.
type member struct {
	id     int
	at     launch.Place
	server *launch.Supervisor

	commands sync.Mutex // held during a command to the supervisor
	claimed  bool       // by a fault; Cluster.mu protects it
}

func (m *member) String() string { return fmt.Sprintf("member %d", m.id) }
func (m *member) name() string   { return fmt.Sprintf("member%d", m.id) }
func (m *member) end() end       { return end{n: m.id} }
func (m *member) addr() string   { return launch.Local(m.at.Client) }

// line describes the member in the configuration of the ensemble.
func (m *member) line() string {
	return fmt.Sprintf("server.%d=%s:%d:%d", m.id, m.name(), m.at.Quorum, m.at.Election)
}

// lineAs is line for a change to the list of members. It adds two things that 3.4 doesn't
// understand: the role (participant or observer), and the address for clients.
func (m *member) lineAs(role string) string { return fmt.Sprintf("%s:%s;%s", m.line(), role, m.addr()) }

// hostOf returns the address at which m reaches a peer. It is a link's address, or m's own.
func (m *member) hostOf(peer *member) string {
	if peer == m {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.0.%d.%d", m.id, peer.id)
}

func (m *member) command(command string) error {
	m.commands.Lock()
	defer m.commands.Unlock()
	return m.server.Command(command)
}

func (m *member) kill() error   { return m.command("kill") }
func (m *member) start() error  { return m.command("start") }
func (m *member) pause() error  { return m.command("pause") }
func (m *member) resume() error { return m.command("resume") }

// shell executes a line of shell code in the member's directory.
func (m *member) shell(format string, args ...any) error {
	return m.command("sh " + fmt.Sprintf(format, args...))
}

// dead reports whether the server's process has ended or was never started. (If a process ended by
// itself, it's a zombie until it is killed.)
func (m *member) dead() bool {
	return m.shell(`grep -q '^State:.[^Z]' /proc/$server/status`) != nil
}

// restart kills the server if it runs, and starts it.
func (m *member) restart() error {
	if err := m.kill(); err != nil {
		return err
	}
	return m.start()
}

// ids returns the numbers of members, for the details of a fault.
func ids(members []*member) []int {
	numbers := make([]int, len(members))
	for i, m := range members {
		numbers[i] = m.id
	}
	slices.Sort(numbers)
	return numbers
}

// minority is the greatest number of members that can fail.
func (c *Cluster) minority() int { return (len(c.members) - 1) / 2 }

// others returns all members but those given.
func (c *Cluster) others(without ...*member) []*member {
	return slices.DeleteFunc(slices.Clone(c.members), func(m *member) bool { return slices.Contains(without, m) })
}

// reports asks all members for a report at the same time, and returns the reports of members that
// serve.
func (c *Cluster) reports() map[*member]launch.Report {
	var mu sync.Mutex
	reports := make(map[*member]launch.Report)
	_ = each(c.members, func(m *member) error {
		r, err := launch.AskReport(m.addr())
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			reports[m] = r
		}
		return nil
	})
	return reports
}

// leader returns the member that leads, or nil. (An isolated leader claims to lead for a while
// after the others have elected another leader. Then leader returns the new leader.)
func (c *Cluster) leader() *member {
	var leader *member
	var newest uint64
	for m, r := range c.reports() {
		if r.Leads() && (leader == nil || r.Epoch() > newest) {
			leader, newest = m, r.Epoch()
		}
	}
	return leader
}

// awaitLeader waits until a member leads (and not the member not).
func (c *Cluster) awaitLeader(ctx context.Context, not *member) (leader *member, err error) {
	err = launch.Poll(ctx, func() error {
		if leader = c.leader(); leader == nil || leader == not {
			return errors.New("no member leads")
		}
		return nil
	})
	return leader, err
}

// awaitServing waits until the given members serve.
func (c *Cluster) awaitServing(ctx context.Context, members []*member) error {
	return each(members, func(m *member) error { return launch.AwaitServing(ctx, m.addr()) })
}

// unsynced returns why not all of these members have every transaction that was committed until
// now, or nil if they do. They must serve, and one of them must lead.
func (c *Cluster) unsynced(members []*member) error {
	before := c.reports()
	var leader *member
	for _, m := range members {
		r, ok := before[m]
		if !ok {
			return fmt.Errorf("%v does not serve", m)
		}
		if !r.Leads() {
			continue
		}
		if leader != nil {
			return fmt.Errorf("%v and %v both lead", leader, m)
		}
		leader = m
	}

	if leader == nil {
		return errors.New("no member leads")
	}

	synced, err := launch.SyncedFollowers(leader.addr())
	if err != nil {
		return err
	}
	if synced < len(members)-1 {
		return fmt.Errorf("%d followers are synced", synced)
	}

	// A leader begins its epoch at number 0, which is no transaction. Then synced followers know
	// everything.
	if uint32(before[leader].Zxid) == 0 {
		return nil
	}
	after := c.reports()
	for _, m := range members {
		if after[m].Zxid < before[leader].Zxid {
			return fmt.Errorf("%v is behind %v", m, leader)
		}
	}

	return nil
}

// inSession calls do in a new session at m. If that takes too long, it fails.
func (m *member) inSession(do func(*zk.Conn) error) error {
	const limit = 20 * time.Second
	conn, _, err := zk.Connect([]string{m.addr()}, limit, zk.WithLogger(silence{}))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer time.AfterFunc(limit, conn.Close).Stop()
	return do(conn)
}

type silence struct{}

func (silence) Printf(string, ...any) {}

// commits returns why m (the leader) commits nothing, or nil if it commits. A new session is a
// transaction.
func (m *member) commits() error {
	return m.inSession(func(conn *zk.Conn) error {
		_, _, err := conn.Exists("/")
		return err
	})
}

// Heal undoes all faults and waits until all members serve and vote, one of them leads and commits,
// and all others are synced with it. It must not be called while Inject runs.
func (c *Cluster) Heal(ctx context.Context) error {
	c.network.clear()
	if err := each(c.members, c.repair); err != nil {
		return fmt.Errorf("cluster: heal: %w", err)
	}

	// A member can have ended by itself, or be in a state that only a restart ends. (If the
	// followers of a 3.8.0 leader have left it and come back, it may never commit anything again.)
	for {
		waiting, cancel := context.WithTimeout(ctx, c.grace)
		err := launch.Poll(waiting, c.reunite)
		cancel()
		var stuck *member
		if leader := c.leader(); err == nil && leader != nil {
			if err = leader.commits(); err == nil {
				return nil
			}
			stuck = leader
		}
		if ctx.Err() != nil {
			return fmt.Errorf("cluster: heal: %w", err)
		}

		reports := c.reports()
		for _, m := range c.members {
			if _, serves := reports[m]; serves && m != stuck {
				continue
			}
			c.config.Log("%v still does not serve or commit, and is restarted: %v", m, err)
			if err := m.restart(); err != nil {
				return fmt.Errorf("cluster: heal: %v: %w", m, err)
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
		return errors.Join(m.kill(), m.revive())
	}
	return m.resume()
}
