package protocol_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	kernel "github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A town has servers whose names resolve to addresses that change, and counts what it is asked. What
// is sent to an address that nobody has is dropped.
type town struct {
	mu      sync.Mutex                  // protects what follows
	homes   map[string]*embedded.Server // by address
	names   map[string]string           // addresses by name; a name without one does not resolve
	mute    map[string]bool             // names whose lookups are not answered
	dialled []string                    // addresses, in order
	dialAt  []time.Time
	lookups []time.Time
	conns   map[string][]net.Conn
}

// newTown has one ensemble, whose servers are zk-0, zk-1 and so on at 10.0.0.1, 10.0.0.2 and so on.
func newTown(t *testing.T, n int) (_ *town, connect string) {
	w := &town{homes: map[string]*embedded.Server{}, names: map[string]string{}, mute: map[string]bool{}, conns: map[string][]net.Conn{}}
	srv := ensembleIn(t)
	var servers []string
	for i := range n {
		w.move(fmt.Sprintf("zk-%d", i), fmt.Sprintf("10.0.0.%d", i+1), srv)
		servers = append(servers, fmt.Sprintf("zk-%d:2181", i))
	}
	return w, strings.Join(servers, ",")
}

func ensembleIn(t *testing.T) *embedded.Server {
	srv, err := embedded.Start(embedded.Config{InMemory: true, TickTime: 500 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { srv.Close() })
	return srv
}

// move gives a name another address, and restarts the server there.
func (w *town) move(name, address string, srv *embedded.Server) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leave(w.names[name])
	w.names[name], w.homes[address] = address, srv
}

// down stops the servers, at the addresses that they have.
func (w *town) down() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, address := range w.names {
		w.leave(address)
	}
}

func (w *town) leave(address string) {
	delete(w.homes, address)
	for _, c := range w.conns[address] {
		c.Close()
	}
}

func (w *town) lookup(ctx context.Context, host string) ([]string, error) {
	w.mu.Lock()
	w.lookups = append(w.lookups, time.Now())
	address, mute := w.names[host], w.mute[host]
	w.mu.Unlock()
	if mute {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if address == "" {
		return nil, &net.DNSError{Err: "no such host", Name: host}
	}
	return []string{address}, nil
}

func (w *town) dial(ctx context.Context, _, address string, timeout time.Duration) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(address)
	w.mu.Lock()
	w.dialled, w.dialAt = append(w.dialled, host), append(w.dialAt, time.Now())
	srv := w.homes[host]
	w.mu.Unlock()
	if srv == nil {
		select {
		case <-time.After(timeout):
		case <-ctx.Done():
		}
		return nil, errors.New("i/o timeout")
	}
	c, err := srv.Dial("tcp", srv.ConnectString(), timeout)
	if err == nil {
		w.mu.Lock()
		w.conns[host] = append(w.conns[host], c)
		w.mu.Unlock()
	}
	return c, err
}

// asked forgets what it was asked, and returns it.
func (w *town) asked() (dials, lookups int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	dials, lookups = len(w.dialled), len(w.lookups)
	w.dialled, w.dialAt, w.lookups = nil, nil, nil
	return dials, lookups
}

func (w *town) client(t *testing.T, connect string, timeout time.Duration) *protocol.Client {
	c, err := protocol.Connect(t.Context(), connect, protocol.WithSessionTimeout(timeout), protocol.WithNet(w.dial, w.lookup))
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// holdNode holds a node of its own.
func holdNode(t *testing.T, c *protocol.Client, path string) (*recipe.Session, *recipe.Grant) {
	s := place(t, c, path)
	stat, err := s.Exists(t.Context(), path)
	require.NoError(t, err)
	g, err := recipe.New(c, "test", "/x").NewGrant(t.Context(), s, path, stat.Czxid, func(context.Context, *recipe.Session) error { return nil })
	require.NoError(t, err)
	return s, g
}

// place creates an ephemeral node.
func place(t *testing.T, c *protocol.Client, path string) *recipe.Session {
	s, err := recipe.SessionOf(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, s.Create(t.Context(), path, nil, zk.FlagEphemeral))
	return s
}

func inTown(t *testing.T, servers int, test func(t *testing.T, w *town, connect string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, connect := newTown(t, servers)
		test(t, w, connect)
	})
}

// An ordinary rolling restart, as of a StatefulSet whose pods come back with other addresses: days
// after the client has connected, and its own server last.
func TestRollingRestartWithNewAddressesLosesNothing(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		for _, timeout := range []time.Duration{2 * time.Second, 6 * time.Second} {
			for round := range 5 {
				inTown(t, n, func(t *testing.T, w *town, connect string) {
					c := w.client(t, connect, timeout)
					_, g := holdNode(t, c, "/node")
					w.mu.Lock()
					mine := w.dialled[len(w.dialled)-1]
					w.mu.Unlock()
					var last string
					for i := range n {
						name := fmt.Sprintf("zk-%d", i)
						if w.names[name] == mine {
							last = name
							continue
						}
						w.move(name, fmt.Sprintf("10.0.1.%d", i), w.homes[mine])
						time.Sleep(time.Minute)
					}
					time.Sleep(time.Duration(round) * timeout / 5)
					w.asked()
					w.move(last, "10.0.2.9", w.homes[mine])
					time.Sleep(time.Minute)
					require.NoError(t, g.Err())
					w.mu.Lock()
					defer w.mu.Unlock()
					for _, address := range w.dialled {
						require.Contains(t, w.homes, address, "an address that is out of date")
					}
				})
			}
		}
	}
}

// While names do not resolve, a session is resumed at the addresses that they had.
func TestSessionIsResumedThoughNamesDoNotResolve(t *testing.T) {
	t.Parallel()
	for _, mute := range []bool{false, true} {
		inTown(t, 3, func(t *testing.T, w *town, connect string) {
			c := w.client(t, connect, 10*time.Second)
			s, g := holdNode(t, c, "/node")
			time.Sleep(time.Hour)
			srv := w.homes["10.0.0.1"]
			w.mu.Lock()
			for name := range w.names {
				if w.mute[name] = mute; !mute {
					w.names[name] = ""
				}
			}
			w.mu.Unlock()
			srv.DropConnections()
			time.Sleep(time.Minute)
			require.NoError(t, g.Err())
			again, err := c.Session(t.Context())
			require.NoError(t, err)
			require.Equal(t, s.ID(), again.ID())
		})
	}
}

// One name that is not answered costs nothing if another one is.
func TestNameThatIsNotAnsweredDelaysNoOther(t *testing.T) {
	t.Parallel()
	inTown(t, 3, func(t *testing.T, w *town, connect string) {
		w.mute["zk-0"], w.mute["zk-1"] = true, true
		began := time.Now()
		w.client(t, connect, 4*time.Second)
		require.Less(t, time.Since(began), time.Second)
	})
}

// The addresses of a dead ensemble belong to another one today, which knows no session of ours.
func TestClientStaysWithItsEnsemble(t *testing.T) {
	t.Parallel()
	inTown(t, 2, func(t *testing.T, w *town, connect string) {
		c := w.client(t, connect, 10*time.Second)
		s, g := holdNode(t, c, "/node")
		home := w.homes["10.0.0.1"]
		time.Sleep(time.Hour)
		other := ensembleIn(t)
		w.down()
		w.mu.Lock()
		w.homes["10.0.0.1"], w.homes["10.0.0.2"] = other, other
		w.names["zk-0"], w.names["zk-1"] = "", ""
		w.mu.Unlock()

		time.Sleep(2 * time.Second)
		require.NoError(t, g.Err(), "the other ensemble says that the session is gone")
		w.move("zk-0", "10.0.3.1", home)
		time.Sleep(time.Minute)
		require.NoError(t, g.Err())

		// Without a session there is nothing to resume, and nothing to ask at these addresses.
		w.down()
		w.mu.Lock()
		w.homes["10.0.0.1"], w.homes["10.0.0.2"], w.homes["10.0.3.1"] = other, other, other
		w.names["zk-0"] = ""
		w.mu.Unlock()
		<-g.Done()
		time.Sleep(time.Hour)
		require.Error(t, s.Err())
		require.NotEqual(t, protocol.Connected, c.State())
		require.ErrorContains(t, c.Close(), "could not be closed", "the other ensemble says that the session is gone")
	})
}

// What a client asks for while its ensemble is away for an hour: dials and lookups.
func TestOutageIsNoHerd(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{4 * time.Second, 10 * time.Second} {
		inTown(t, 3, func(t *testing.T, w *town, connect string) {
			c := w.client(t, connect, timeout)
			w.down()
			time.Sleep(30 * time.Second)
			w.asked()
			time.Sleep(time.Hour)
			dials, lookups := w.asked()
			require.Less(t, dials+lookups, 3600/2, "nothing at stake")
			require.Greater(t, dials, 3600/15)
			c.Close()
		})
	}
}

// A session that its client has given up must end at the servers, though a proxy on the way passes
// requests on and hangs up instead of answering.
func TestLostSessionIsNotKeptAliveBehindABrokenProxy(t *testing.T) {
	t.Parallel()
	inTown(t, 1, func(t *testing.T, w *town, connect string) {
		const timeout = 4 * time.Second
		c := w.client(t, connect, timeout)
		_, g := holdNode(t, c, "/node")
		other, err := recipe.SessionOf(t.Context(), w.client(t, connect, timeout))
		require.NoError(t, err)
		w.mu.Lock()
		kernel.Open(c).Dial = func(ctx context.Context, network, address string, timeout time.Duration) (net.Conn, error) {
			conn, err := w.dial(ctx, network, address, timeout)
			if err != nil {
				return nil, err
			}
			return hangsUp{conn}, nil
		}
		w.mu.Unlock()
		w.homes["10.0.0.1"].DropConnections()
		<-g.Done()
		gone, cancel := context.WithTimeout(t.Context(), 4*timeout)
		defer cancel()
		_, err = other.WaitNode(gone, "/node", func(*zk.Stat) bool { return false })
		require.NoError(t, err, "the node of the lost session")
	})
}

// hangsUp passes requests on, and hangs up when the answer comes.
type hangsUp struct{ net.Conn }

func (c hangsUp) Read(p []byte) (int, error) {
	if _, err := c.Conn.Read(p); err != nil {
		return 0, err
	}
	c.Close()
	return 0, net.ErrClosed
}

// One server accepts sessions at what was its neighbour's address, and knows none of ours. The other
// servers are away, so they are the last to be tried in each round.
func TestExpiryIsBelievedThoughOtherServersAreAway(t *testing.T) {
	t.Parallel()
	inTown(t, 3, func(t *testing.T, w *town, connect string) {
		c := w.client(t, connect, 10*time.Second)
		s := place(t, c, "/node")
		mine := w.dialled[len(w.dialled)-1] // the last one of the next round

		// Its transactions must be newer than what the session has seen, or it would say nothing.
		other := ensembleIn(t)
		w.move("other", "10.0.9.9", other)
		ahead := w.client(t, "other:2181", 10*time.Second)
		for i := range 9 {
			place(t, ahead, fmt.Sprintf("/node-%d", i))
		}
		require.NoError(t, ahead.Close())
		time.Sleep(time.Second) // names were resolved some time ago
		w.asked()
		w.down()
		for i := range 3 {
			if address := fmt.Sprintf("10.0.0.%d", i+1); address != mine {
				w.mu.Lock()
				w.homes[address] = other
				w.mu.Unlock()
				break
			}
		}
		cut := time.Now()
		<-s.Done()
		require.Less(t, time.Since(cut), 7*time.Second)
		require.ErrorContains(t, s.Err(), "expired")
		w.mu.Lock()
		defer w.mu.Unlock()
		require.Len(t, w.lookups, 1, "of the one name")
	})
}

// A lookup that is not answered does not delay Close.
func TestCloseDoesNotWaitForNames(t *testing.T) {
	t.Parallel()
	inTown(t, 3, func(t *testing.T, w *town, connect string) {
		w.mute["zk-0"], w.mute["zk-1"] = true, true
		c := w.client(t, connect, 4*time.Second)
		began := time.Now()
		require.NoError(t, c.Close())
		require.Less(t, time.Since(began), time.Second)
	})
}

// A session that is lost before its credentials were sent has to be closed, too. If that fails at
// first, it waits for the next session, which must not wait for it.
func TestSessionThatIsLostAtOnceIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	inTown(t, 1, func(t *testing.T, w *town, connect string) {
		srv := w.homes["10.0.0.1"]
		go func() {
			time.Sleep(10 * time.Second) // longer than the session timeout
			w.move("zk-0", "10.0.0.1", srv)
		}()
		made := 0
		dial := func(ctx context.Context, network, address string, timeout time.Duration) (net.Conn, error) {
			c, err := w.dial(ctx, network, address, timeout)
			if err != nil {
				return nil, err
			}
			switch made++; made {
			case 1:
				return &writesOnce{c, 0, w.down}, nil
			case 3: // after the one over which the loss is noticed
				c.Close()
				return nil, errors.New("connection refused")
			}
			return c, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c, err := protocol.Connect(ctx, connect, protocol.WithSessionTimeout(4*time.Second), protocol.WithAuth("digest", []byte("alice:secret")),
			protocol.WithNet(dial, w.lookup))
		require.NoError(t, err)
		require.NoError(t, c.Close())
	})
}

// writesOnce takes a connect request and nothing else.
type writesOnce struct {
	net.Conn
	writes int
	then   func()
}

func (c *writesOnce) Write(p []byte) (int, error) {
	if c.writes++; c.writes > 1 {
		c.then()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// A resolver of the user's may panic, end its goroutine, and not return. It is called again.
func TestResolverThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func(){
		"panic": func() { panic("resolver") }, "goexit": runtime.Goexit, "hang": nil,
	} {
		t.Run(name, func(t *testing.T) {
			inTown(t, 1, func(t *testing.T, w *town, connect string) {
				over := make(chan struct{})
				var calls atomic.Int32
				defer close(over)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				c, err := protocol.Connect(ctx, connect, protocol.WithNet(w.dial, func(ctx context.Context, host string) ([]string, error) {
					if first := calls.Add(1) == 1; first && name == "hang" {
						<-over
					} else if first {
						fails()
					}
					return w.lookup(ctx, host)
				}))
				require.NoError(t, err)
				require.NoError(t, c.Close())
			})
		})
	}
}
