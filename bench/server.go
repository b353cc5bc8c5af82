package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
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

// places returns functions that start the servers that o selects, one after the other. By default
// that's Debian's ZooKeeper (standalone and as an ensemble), or else the embedded server.
func places(o options) []func(context.Context) (*server, error) {
	_, err := os.Stat(filepath.Join(debianJars, "zookeeper.jar"))
	_, noJava := exec.LookPath("java")
	switch {
	case o.servers != "":
		return []func(context.Context) (*server, error){func(context.Context) (*server, error) { return namedServers(o.servers), nil }}
	case o.embedded || err != nil || noJava != nil:
		return []func(context.Context) (*server, error){startEmbedded}
	case o.standalone || o.members < 2:
		return []func(context.Context) (*server, error){startStandalone}
	default:
		return []func(context.Context) (*server, error){startStandalone, func(ctx context.Context) (*server, error) {
			return startEnsemble(ctx, o.members)
		}}
	}
}

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

	addresses, err := freeAddresses(3 * members) // of clients, of the quorum and of elections
	if err != nil {
		return nil, err
	}
	s.address = strings.Join(addresses[:members], ",")
	if members > 1 {
		for i := range members {
			_, election, _ := net.SplitHostPort(addresses[2*members+i])
			config = append(config, fmt.Sprintf("server.%d=%s:%s", i, addresses[members+i], election))
		}
	}

	start := func(m *member) error {
		stop, err := m.start(config)
		if err == nil {
			stops = append(stops, stop)
		}
		return err
	}

	for i := range members {
		m := &member{address: addresses[i], id: i}
		if m.dir, err = os.MkdirTemp(parent, "zkrecipes-bench-"); err != nil {
			return nil, err
		}
		if err := start(m); err != nil {
			return nil, errors.Join(err, os.RemoveAll(m.dir))
		}
		s.members = append(s.members, m)
	}

	return s, s.await(ctx, how)
}

// await waits until all members serve, and finds out which of them leads.
func (s *server) await(ctx context.Context, how string) error {
	for began := time.Now(); ; {
		leader := -1
		var unready error
		for i, m := range s.members {
			answer, err := fourLetters(m.address, "srvr")
			if err != nil {
				text, _ := os.ReadFile(filepath.Join(m.dir, "log"))
				unready = fmt.Errorf("ZooKeeper did not start: %w\n%s", err, text)
			} else if !strings.Contains(answer, "Mode: follower") {
				leader = i
				s.where = "a real ZooKeeper " + version(answer) + " on this machine, " + how
			}
		}
		if unready == nil && leader >= 0 {
			last := len(s.members) - 1
			s.members[leader], s.members[last] = s.members[last], s.members[leader]
			return nil
		}

		if ctx.Err() != nil || time.Since(began) > time.Minute {
			return errors.Join(unready, ctx.Err())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// start starts a process for m. It keeps the data of earlier processes.
func (m *member) start(config []string) (stop func(), err error) {
	_, port, _ := net.SplitHostPort(m.address)
	file := filepath.Join(m.dir, "zoo.cfg")
	lines := append([]string{
		"tickTime=2000", "dataDir=" + m.dir, "clientPort=" + port, "clientPortAddress=127.0.0.1", "maxClientCnxns=0",
		"admin.enableServer=false", "preAllocSize=16384", "4lw.commands.whitelist=srvr",
	}, config...)
	err = errors.Join(
		os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600),
		os.WriteFile(filepath.Join(m.dir, "myid"), []byte(fmt.Sprint(m.id)), 0o600))
	if err != nil {
		return nil, err
	}

	stop, m.pid, err = supervise(m.dir, "java", "-Xmx1g", "-XX:+UseSerialGC",
		"-cp", debianJars+"/slf4j-nop.jar:"+debianJars+"/*",
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
	return stop, err
}

// supervise runs a command until stop is called or this process dies (in any way). Then it removes
// the directory.
func supervise(dir string, command ...string) (stop func(), pid int, err error) {
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

// freeAddresses returns addresses of this machine on which no process listens.
func freeAddresses(n int) ([]string, error) {
	return several(n, func() (string, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		defer l.Close()
		return l.Addr().String(), nil
	})
}

// fourLetters sends a four-letter word to a server, and returns the answer.
func fourLetters(address, word string) (string, error) {
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(c, word); err != nil {
		return "", err
	}

	answer, err := io.ReadAll(c)
	if err == nil && !strings.Contains(string(answer), "Zookeeper version") {
		err = fmt.Errorf("%s: %s", word, answer)
	}

	return string(answer), err
}

// version returns the version in the answer to srvr, without the build.
func version(answer string) string {
	line, _, _ := strings.Cut(answer, "\n")
	line, _, _ = strings.Cut(strings.TrimPrefix(line, "Zookeeper version: "), "-")
	return line
}

// received returns how many packets the servers have received since they started, or 0 if they
// don't say.
func (s *server) received() (n int64) {
	for _, m := range s.members {
		n += report(m.address, "Received: %d")
	}
	return n
}

// report returns a number that a server reports about itself, or 0.
func report(address, format string) (n int64) {
	answer, err := fourLetters(address, "srvr")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(answer) {
		if _, err := fmt.Sscanf(line, format, &n); err == nil {
			return n
		}
	}
	return 0
}

// cpuTime returns the processor time of all members so far.
func (s *server) cpuTime() (sum time.Duration) {
	for _, m := range s.members {
		sum += cpuTime(m.pid)
	}
	return sum
}
