package embedded_test

import (
	"bufio"
	"io"
	"net"
	"os/exec"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// An address leads clients to one server after the other, as a fixed port does that each of them
// listens on.
type address struct {
	mu     sync.Mutex
	server *embedded.Server
}

// serve makes s the server at the address. Until s is closed, clients reach it and no other.
func (a *address) serve(s *embedded.Server) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.server = s
}

func (a *address) Dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.server.Dial(network, addr, timeout)
}

// listen makes the address reachable by TCP, at the same port all the time, and returns its host
// and port.
func (a *address) listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)

	var relays sync.WaitGroup
	relays.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := a.Dial("tcp", "", 0)
			if err != nil {
				client.Close()
				continue
			}
			for _, ends := range [][2]net.Conn{{client, server}, {server, client}} {
				relays.Go(func() {
					io.Copy(ends[0], ends[1])
					ends[0].Close()
					ends[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		l.Close()
		relays.Wait()
	})
	return l.Addr().String()
}

func TestClientsOfAFormerServerGoOnInANewSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var at address
		former, err := embedded.Start(embedded.Config{InMemory: true})
		require.NoError(t, err)
		at.serve(former)
		c, events, err := zk.Connect([]string{inMemory}, 10*time.Second,
			zk.WithDialer(at.Dial), zk.WithLogger(silent{}))
		require.NoError(t, err)
		defer c.Close()
		for receive(t, events).State != zk.StateHasSession {
		}
		for range 3 { // so that it has seen more than a server that has just begun
			put(t, c, "/a", "")
			require.NoError(t, c.Delete("/a", -1))
		}
		session := c.SessionID()

		require.NoError(t, former.Close())
		time.Sleep(time.Second)
		at.serve(start(t, embedded.Config{InMemory: true}))

		var states []zk.State
		for len(states) == 0 || states[len(states)-1] != zk.StateHasSession {
			states = append(states, receive(t, events).State)
		}
		require.Contains(t, states, zk.StateExpired)
		require.NotEqual(t, session, c.SessionID())
		put(t, c, "/a", "again")
		require.Equal(t, "again", data(t, c, "/a"))
	})
}

const kazooRestartScript = `
import sys
from kazoo.client import KazooClient, KazooState
client = KazooClient(sys.argv[1], timeout=20)
states = []
client.add_listener(lambda state: states.append(state))
client.start()
client.create("/mine", b"mine", ephemeral=True)
for i in range(10):
    client.set("/mine", b"%d" % i)
session = client.client_id[0]
print("ready", flush=True)
sys.stdin.readline()
client.retry(client.ensure_path, "/again")
same = client.client_id[0] == session
assert same == (KazooState.LOST not in states), states
print("resumed" if same else "expired", "found" if client.exists("/mine") else "none", flush=True)
sys.stdin.readline()
client.stop()
`

// kazooAcrossARestart runs a kazoo client while restart replaces the server at an address, and
// returns what has become of the client's session and of its ephemeral node.
func kazooAcrossARestart(t *testing.T, at *address, restart func()) string {
	t.Helper()
	const python = "/usr/bin/python3"
	if _, err := exec.Command(python, "-c", "import kazoo").Output(); err != nil {
		missing(t, "kazoo")
	}

	cmd := exec.Command(python, "-c", kazooRestartScript, at.listen(t))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})

	lines := make(chan string, 2)
	go func() {
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	require.Equal(t, "ready", receive(t, lines))
	restart()
	_, err = io.WriteString(in, "\n")
	require.NoError(t, err)
	return receive(t, lines)
}

func TestKazooGoesOnInANewSession(t *testing.T) {
	t.Parallel()
	var at address
	former := start(t, embedded.Config{})
	at.serve(former)
	require.Equal(t, "expired none", kazooAcrossARestart(t, &at, func() {
		require.NoError(t, former.Close())
		at.serve(start(t, embedded.Config{}))
	}))
}
