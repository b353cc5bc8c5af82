package main

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

// A devServer is a process of zkr server.
type devServer struct {
	cmd     *exec.Cmd
	address string
	stderr  bytes.Buffer
	stdout  *bufio.Reader
}

// serve starts zkr server and waits until it is ready.
func serve(t *testing.T, args ...string) *devServer {
	t.Helper()
	s := &devServer{cmd: zkr(t, "", append([]string{"server"}, args...)...)}
	s.cmd.Stderr = &s.stderr
	out := suite.Got(s.cmd.StdoutPipe())(t)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() { s.end(t, syscall.SIGKILL) })

	s.stdout = bufio.NewReader(out)
	line, err := s.stdout.ReadString('\n')
	require.NoError(t, err, "%s", &s.stderr)
	s.address = line[:len(line)-1]
	return s
}

// end sends a signal to the server and returns its exit status, or -1 if the signal has ended it.
func (s *devServer) end(t *testing.T, sig syscall.Signal) int {
	t.Helper()
	if s.cmd.ProcessState == nil {
		require.NoError(t, s.cmd.Process.Signal(sig))
		s.cmd.Wait() //nolint:errcheck // the exit status says the same
	}
	return s.cmd.ProcessState.ExitCode()
}

// A plainClient is a client of go-zookeeper, and the states of its session.
type plainClient struct {
	*zk.Conn
	mu     sync.Mutex
	states []zk.State
}

func dialServer(t *testing.T, address string) *plainClient {
	t.Helper()
	c := new(plainClient)
	conn, events, err := zk.Connect([]string{address}, 40*time.Second, zk.WithLogInfo(false),
		zk.WithLogger(silent{}), zk.WithEventCallback(func(e zk.Event) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.states = append(c.states, e.State)
		}))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	go func() {
		for range events { // until Close
		}
	}()
	c.Conn = conn
	return c
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// ownHost returns a host that no other process uses, where there are so many. So the port of a
// server that has ended stays free for the next one.
func ownHost() string {
	if runtime.GOOS == "linux" {
		return "127.77.1.1:0"
	}
	return "127.0.0.1:0"
}

// retry calls f until it succeeds.
func retry(t *testing.T, f func() error) {
	t.Helper()
	require.Eventually(t, func() bool { return f() == nil }, 2*time.Minute, 20*time.Millisecond)
}

func TestServerSaysThatItIsForDevelopment(t *testing.T) {
	s := serve(t, "--listen", "127.0.0.1:0")
	require.Zero(t, s.end(t, syscall.SIGTERM))
	require.Regexp(t, `\Azkr: a server for development on 127.0.0.1:\d+: one process, not a production ensemble; it keeps nothing[^\n]+\n\z`, s.stderr.String())

	s = serve(t, "--listen", "127.0.0.1:0", "--quiet")
	require.Zero(t, s.end(t, syscall.SIGINT))
	require.Empty(t, s.stderr.String())

	s = serve(t, "--listen", "127.0.0.1:0", "--json")
	require.Regexp(t, `^\{"servers":"127.0.0.1:\d+"\}$`, s.address)
}

func TestServerRefusesWhatItCannotServe(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, "--listen", "127.0.0.1:0", "--data", dir)
	r := runZkr(t, "", "server", "--listen", s.address)
	require.Equal(t, exitFailed, r.status)
	require.Contains(t, r.stderr, "address already in use")
	r = runZkr(t, "", "server", "--listen", "127.0.0.1:0", "--data", dir)
	require.Equal(t, exitFailed, r.status)
	require.Contains(t, r.stderr, "another server uses this directory")

	// Damaged data is refused, and the message says what to do.
	require.Zero(t, s.end(t, syscall.SIGTERM))
	data := filepath.Join(dir, "data")
	require.NoError(t, os.Truncate(data, 40))
	r = runZkr(t, "", "server", "--listen", "127.0.0.1:0", "--data", dir, "--quiet")
	require.Equal(t, exitFailed, r.status)
	require.Regexp(t, `\Azkr: embedded: `+data+` is damaged: [^\n]+: restore the directory, or remove it[^\n]+\n\z`, r.stderr)
}

func TestServerKeepsItsData(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, "--listen", ownHost(), "--data", dir)
	c := dialServer(t, s.address)
	suite.Got(c.Create("/mine", []byte("0"), zk.FlagEphemeral, zk.WorldACL(zk.PermAll)))(t)
	session := c.SessionID()

	// However the server ends, its data and sessions are there again.
	for version, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGINT} {
		want := s.end(t, sig) // the status
		require.Equal(t, sig == syscall.SIGKILL, want == -1)
		s = serve(t, "--listen", s.address, "--data", dir)

		var stat *zk.Stat
		retry(t, func() (err error) {
			_, stat, err = c.Get("/mine")
			return err
		})
		require.EqualValues(t, version, stat.Version)
		require.Equal(t, session, stat.EphemeralOwner)
		require.Equal(t, session, c.SessionID())
		suite.Got(c.Set("/mine", nil, stat.Version))(t)
	}
}

func TestServerWithoutDataTellsClientsThatTheirSessionHasExpired(t *testing.T) {
	s := serve(t, "--listen", ownHost())
	c := dialServer(t, s.address)
	for range 20 {
		suite.Got(c.Create("/n-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll)))(t)
	}
	session := c.SessionID()

	// Without data, the new server doesn't know the session.
	s.end(t, syscall.SIGKILL)
	serve(t, "--listen", s.address)
	retry(t, func() error {
		_, err := c.Create("/again", nil, 0, zk.WorldACL(zk.PermAll))
		if errors.Is(err, zk.ErrNodeExists) {
			return nil // its answer was lost
		}
		return err
	})
	require.NotEqual(t, session, c.SessionID())
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Contains(t, c.states, zk.StateExpired)
}

func TestServerSaysWhoCanReachItAndWhatItFinds(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, "--listen", "0.0.0.0:0", "--data", dir)
	require.Zero(t, s.end(t, syscall.SIGTERM))
	require.Contains(t, s.stderr.String(), "zkr: warning: other machines can reach ")
	require.Contains(t, s.stderr.String(), "has no data yet")
	s = serve(t, "--listen", "127.0.0.1:0", "--data", dir)
	require.Zero(t, s.end(t, syscall.SIGTERM))
	require.NotContains(t, s.stderr.String(), "warning")
	require.NotContains(t, s.stderr.String(), "has no data yet")
}
