package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/must"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/reach"
)

// A server is the ZooKeeper on which all contestants are measured (one server, or an ensemble).
type server struct {
	address string    // of all members
	members []*member // the leader is the last one
	where   string    // for the heading
	stops   []func()
}

func (s *server) stop() {
	for _, stop := range slices.Backward(s.stops) {
		stop()
	}
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

// find makes s the servers at these addresses.
func (s *server) find(addresses string) {
	s.address, s.where = addresses, "ZooKeeper at "+addresses
	for address := range strings.SplitSeq(addresses, ",") {
		s.members = append(s.members, &member{address: address})
	}
}

func startEmbedded(_ context.Context, s *server) {
	e := must.Get(embedded.Start(embedded.Config{}))
	s.stops = append(s.stops, func() { e.Close() })
	s.find(e.ConnectString())
	s.where = "the embedded server, NOT a real ZooKeeper; it shares this process, and its allocations and CPU time count as the client's"
}

// startStandalone starts a server with its data in memory, because we measure recipes and not
// disks.
func startStandalone(ctx context.Context, s *server) {
	parent := "/dev/shm"
	if _, err := os.Stat(parent); err != nil {
		parent = ""
	}
	s.startJava(ctx, 1, "standalone, with its data in memory", parent, "forceSync=no")
}

// startEnsemble starts servers that write their logs to disk, as in production.
func startEnsemble(ctx context.Context, s *server, members int) {
	s.startJava(ctx, members, fmt.Sprintf("an ensemble of %d, with its data on disk", members), "", "initLimit=10", "syncLimit=5")
}

// startJava starts members of Debian's ZooKeeper, with directories below parent. It waits until
// they serve.
func (s *server) startJava(ctx context.Context, members int, how, parent string, config ...string) {
	var places []reach.Place
	var addresses []string
	// Find the ports of all members first, because the configuration of each names all of them.
	for id := range members {
		at := must.Get(reach.NewPlace("127.0.0.1"))
		places, addresses = append(places, at), append(addresses, reach.Local(at.Client))
		if members > 1 {
			config = append(config, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", id, at.Quorum, at.Election))
		}
	}
	s.address = strings.Join(addresses, ",")

	for id, at := range places {
		m := &member{address: addresses[id], id: id, dir: must.Get(os.MkdirTemp(parent, "zkrecipes-bench-"))}
		s.members, s.stops = append(s.members, m), append(s.stops, func() { os.RemoveAll(m.dir) })
		s.stops = append(s.stops, m.start(at, config))
	}
	must.Succeed(s.await(ctx, how))
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

// start starts a process for m.
func (m *member) start(at reach.Place, config []string) (stop func()) {
	file := filepath.Join(m.dir, "zoo.cfg")
	// All sessions come from one address, so the usual limit of 60 connections has to go
	// (maxClientCnxns).
	lines := append([]string{
		"tickTime=2000", "dataDir=" + m.dir, fmt.Sprint("clientPort=", at.Client), "clientPortAddress=127.0.0.1", "maxClientCnxns=0",
		"admin.enableServer=false", "preAllocSize=16384", "4lw.commands.whitelist=srvr,mntr",
	}, config...)
	must.Succeed(os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	must.Succeed(os.WriteFile(filepath.Join(m.dir, "myid"), []byte(fmt.Sprint(m.id)), 0o600))

	// The first logger on the class path wins, so the server's logging costs nothing.
	stop, m.pid = supervise(m.dir, "java", "-Xmx1g", "-XX:+UseSerialGC",
		"-cp", debianJars+"/slf4j-nop.jar:"+debianJars+"/*",
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
	return stop
}

// supervise runs a command until stop is called or this process dies (in any way). Then it removes
// the directory.
func supervise(dir string, command ...string) (stop func(), pid int) {
	// The shell waits in cat until its standard input ends. That happens when this process closes
	// it, or dies.
	const script = `dir=$1; shift; "$@" </dev/null >"$dir/log" 2>&1 & echo $!; cat; kill -KILL $!; rm -rf "$dir"`
	cmd := exec.Command("sh", append([]string{"-c", script, "supervisor", dir}, command...)...)
	detach(cmd)
	in, out := must.Get(cmd.StdinPipe()), must.Get(cmd.StdoutPipe())
	must.Succeed(cmd.Start())
	stop = func() {
		in.Close()
		cmd.Wait()
	}

	if _, err := fmt.Fscanln(out, &pid); err != nil {
		stop()
		must.Succeed(err)
	}
	return stop, pid
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
