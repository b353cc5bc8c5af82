package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/reach"
)

// A server is the ZooKeeper on which all contestants are measured (one server, or an ensemble).
type server struct {
	address string    // of all members
	members []*member // the leader is the last one
	where   string    // for the heading
	stop    func()
}

// A member is one process of a server.
type member struct {
	address string
	pid     int    // 0 if it isn't a process of ours alone
	id      int    // in the ensemble
	dir     string // of its files
}

// debianJars is where Debian has zookeeper and its dependencies.
const debianJars = "/usr/share/java"

func namedServers(addresses string) *server {
	s := &server{address: addresses, where: "ZooKeeper at " + addresses, stop: func() {}}
	for address := range strings.SplitSeq(addresses, ",") {
		s.members = append(s.members, &member{address: address})
	}
	return s
}

func startEmbedded(context.Context) (*server, error) {
	s, err := embedded.Start(embedded.Config{})
	if err != nil {
		return nil, err
	}

	return &server{
		address: s.ConnectString(),
		members: []*member{{address: s.ConnectString()}},
		where:   "the embedded server, NOT a real ZooKeeper; it shares this process, and its allocations and CPU time count as the client's",
		stop:    func() { s.Close() },
	}, nil
}

// startStandalone starts a server with its data in memory, because we measure recipes and not
// disks.
func startStandalone(ctx context.Context) (*server, error) {
	parent := "/dev/shm"
	if _, err := os.Stat(parent); err != nil {
		parent = ""
	}
	return startJava(ctx, 1, "standalone, with its data in memory", parent, "forceSync=no")
}

// startEnsemble starts servers that write their logs to disk, as in production.
func startEnsemble(ctx context.Context, members int) (*server, error) {
	return startJava(ctx, members, fmt.Sprintf("an ensemble of %d, with its data on disk", members), "", "initLimit=10", "syncLimit=5")
}

// startJava starts members of Debian's ZooKeeper, with directories below parent. It waits until
// they serve.
func startJava(ctx context.Context, members int, how, parent string, config ...string) (_ *server, err error) {
	var stops []func()
	s := &server{stop: func() {
		for _, stop := range stops {
			stop()
		}
	}}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()

	var places []reach.Place
	var addresses []string
	// Find the ports of all members first, because the configuration of each names all of them.
	for id := range members {
		at, err := reach.NewPlace("127.0.0.1")
		if err != nil {
			return nil, err
		}
		places, addresses = append(places, at), append(addresses, reach.Local(at.Client))
		if members > 1 {
			config = append(config, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", id, at.Quorum, at.Election))
		}
	}
	s.address = strings.Join(addresses, ",")

	for id, at := range places {
		m := &member{address: addresses[id], id: id}
		if m.dir, err = os.MkdirTemp(parent, "zkrecipes-bench-"); err != nil {
			return nil, err
		}
		stop, err := m.start(at, config)
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(m.dir))
		}
		stops, s.members = append(stops, stop), append(s.members, m)
	}

	return s, s.await(ctx, how)
}

// await waits until all members serve and are synced with the leader, and finds out which of them
// that is.
func (s *server) await(ctx context.Context, how string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return reach.Poll(ctx, func() error {
		leader, reports, err := reach.SyncedLeader(s.members, func(m *member) string { return m.address })
		if err != nil {
			for _, m := range s.members {
				text, _ := os.ReadFile(filepath.Join(m.dir, "log"))
				err = fmt.Errorf("%w\n%s", err, text)
			}
			return fmt.Errorf("ZooKeeper did not start: %w", err)
		}
		s.where = "a real ZooKeeper " + reports[leader].Version + " on this machine, " + how

		// The first session of each contestant is then at a follower.
		last, at := len(s.members)-1, slices.Index(s.members, leader)
		s.members[at], s.members[last] = s.members[last], s.members[at]
		return nil
	})
}

// start starts a process for m. It keeps the data of earlier processes.
func (m *member) start(at reach.Place, config []string) (stop func(), err error) {
	file := filepath.Join(m.dir, "zoo.cfg")
	// All sessions come from one address, so the usual limit of 60 connections has to go
	// (maxClientCnxns).
	lines := append([]string{
		"tickTime=2000", "dataDir=" + m.dir, fmt.Sprint("clientPort=", at.Client), "clientPortAddress=127.0.0.1", "maxClientCnxns=0",
		"admin.enableServer=false", "preAllocSize=16384", "4lw.commands.whitelist=srvr,mntr",
	}, config...)
	err = errors.Join(
		os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600),
		os.WriteFile(filepath.Join(m.dir, "myid"), []byte(fmt.Sprint(m.id)), 0o600))
	if err != nil {
		return nil, err
	}

	// The first logger on the class path wins, so the server's logging costs nothing.
	stop, m.pid, err = supervise(m.dir, "java", "-Xmx1g", "-XX:+UseSerialGC",
		"-cp", debianJars+"/slf4j-nop.jar:"+debianJars+"/*",
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
	return stop, err
}

// supervise runs a command until stop is called or this process dies (in any way). Then it removes
// the directory.
func supervise(dir string, command ...string) (stop func(), pid int, err error) {
	// The shell waits in cat until its standard input ends. That happens when this process closes
	// it, or dies.
	const script = `dir=$1; shift; "$@" </dev/null >"$dir/log" 2>&1 & echo $!; cat; kill -KILL $!; rm -rf "$dir"`
	cmd := exec.Command("sh", append([]string{"-c", script, "supervisor", dir}, command...)...)
	detach(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, 0, err
	}

	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, 0, err
	}

	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}

	stop = func() {
		in.Close()
		cmd.Wait()
	}

	if _, err := fmt.Fscanln(out, &pid); err != nil {
		stop()
		return nil, 0, err
	}

	return stop, pid, nil
}

// received returns how many packets the servers have received since they started, or 0 if they
// don't say.
func (s *server) received() (n int64) {
	for _, m := range s.members {
		answer, _ := reach.Ask(m.address, "srvr")
		_, count, _ := strings.Cut(answer, "Received: ")
		var received int64
		fmt.Sscan(count, &received)
		n += received
	}
	return n
}

// cpuTime returns the processor time of all members so far.
func (s *server) cpuTime() (sum time.Duration) {
	for _, m := range s.members {
		sum += cpuTime(m.pid)
	}
	return sum
}
