package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/launch"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/reach"
)

// A member is one server of the ensemble.
type member struct {
	id     int
	at     reach.Place
	server *launch.Supervisor

	claimed bool // by a fault; Cluster.mu protects it
}

func (m *member) String() string { return fmt.Sprintf("member %d", m.id) }
func (m *member) name() string   { return fmt.Sprintf("member%d", m.id) }
func (m *member) end() end       { return end{n: m.id} }
func (m *member) addr() string   { return reach.Local(m.at.Client) }

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

func (m *member) kill() error   { return m.server.Command("kill") }
func (m *member) start() error  { return m.server.Command("start") }
func (m *member) pause() error  { return m.server.Command("pause") }
func (m *member) resume() error { return m.server.Command("resume") }

// shell executes a line of shell code in the member's directory.
func (m *member) shell(format string, args ...any) error {
	return m.server.Command("sh " + fmt.Sprintf(format, args...))
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

// inSession calls do in a new session at m. If that takes too long, it fails.
func (m *member) inSession(do func(*zk.Conn) error) error {
	const limit = 20 * time.Second
	conn, _, err := zk.Connect([]string{m.addr()}, limit, zk.WithLogger(silence{}))
	if err != nil {
		return err
	}
	defer conn.Close()
	// go-zookeeper has no contexts, and tries for ever.
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

// copyLog writes the log of a member to a file of its own.
func (m *member) copyLog(dir string) error {
	f, err := os.Create(filepath.Join(dir, m.name()+".log"))
	if err != nil {
		return err
	}
	return errors.Join(m.server.CopyLog(f), f.Close())
}
