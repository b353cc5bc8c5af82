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

// A server is the ZooKeeper on which all contestants are measured.
type server struct {
	address string
	where   string // for the heading
	pid     int    // 0 if it is not a process of ours alone
	stop    func()
}

// debianJars is where Debian has zookeeper and its dependencies.
const debianJars = "/usr/share/java"

// findServer returns the servers that o names. Otherwise it starts Debian's ZooKeeper, or the
// embedded server.
func findServer(ctx context.Context, o options) (*server, error) {
	if o.servers != "" {
		return &server{address: o.servers, where: "ZooKeeper at " + o.servers, stop: func() {}}, nil
	}

	if !o.embedded {
		s, err := startJava(ctx)
		if err == nil || !errors.Is(err, exec.ErrNotFound) && !errors.Is(err, os.ErrNotExist) {
			return s, err
		}
	}

	s, err := embedded.Start(embedded.Config{})
	if err != nil {
		return nil, err
	}

	return &server{
		address: s.ConnectString(),
		where:   "the embedded server, NOT a real ZooKeeper; it shares this process, and its allocations and CPU time count as the client's",
		stop:    func() { s.Close() },
	}, nil
}

// startJava starts Debian's ZooKeeper with its data in memory, because recipes are measured and not
// disks.
func startJava(ctx context.Context) (_ *server, err error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, err
	}

	if _, err := os.Stat(filepath.Join(debianJars, "zookeeper.jar")); err != nil {
		return nil, err
	}

	parent := "/dev/shm"
	if _, err := os.Stat(parent); err != nil {
		parent = ""
	}

	dir, err := os.MkdirTemp(parent, "zkrecipes-bench-")
	if err != nil {
		return nil, err
	}

	address, err := freeAddress()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}

	_, port, _ := net.SplitHostPort(address)
	config := filepath.Join(dir, "zoo.cfg")
	err = os.WriteFile(config, []byte(strings.Join([]string{
		"tickTime=2000", "dataDir=" + dir, "clientPort=" + port, "clientPortAddress=127.0.0.1", "maxClientCnxns=0",
		"admin.enableServer=false", "forceSync=no", "preAllocSize=16384", "",
	}, "\n")), 0o600)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}

	stop, pid, err := supervise(dir, java, "-Xmx1g", "-XX:+UseSerialGC",
		"-cp", debianJars+"/slf4j-nop.jar:"+debianJars+"/*",
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", config)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}

	s := &server{
		address: address,
		pid:     pid,
		stop:    stop,
	}

	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		answer, err := fourLetters(address, "srvr")
		if err == nil {
			s.where = "a real ZooKeeper " + version(answer) + " on this machine, standalone, with its data in memory"
			return s, nil
		}
		if ctx.Err() != nil || time.Since(began) > time.Minute {
			text, _ := os.ReadFile(filepath.Join(dir, "log"))
			s.stop()
			return nil, fmt.Errorf("ZooKeeper did not start: %w\n%s", err, text)
		}
	}
}

// supervise runs a command until stop is called or this process dies in any way. It then removes
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

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
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

// received returns how many packets the server has received since it started, or 0 if it does not
// say.
func (s *server) received() (n int64) {
	answer, err := fourLetters(strings.Split(s.address, ",")[0], "srvr")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(answer) {
		if _, err := fmt.Sscanf(line, "Received: %d", &n); err == nil {
			return n
		}
	}
	return 0
}
