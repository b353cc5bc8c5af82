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

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A town has servers whose names resolve to changing addresses, and counts lookups and dials.
// It drops packets to an address without a server.
type town struct {
	mu      sync.Mutex                  // protects the fields below
	homes   map[string]*embedded.Server // by address
	names   map[string]string           // addresses by name; a name without one does not resolve
	dialled []string                    // addresses, in order
	lookups int
	conns   map[string][]net.Conn
}

// newTown has one ensemble, whose servers are zk-0, zk-1 and so on at 10.0.0.1, 10.0.0.2 and so on.
func newTown(t *testing.T, n int) (_ *town, connect string) {
	w := &town{homes: map[string]*embedded.Server{}, names: map[string]string{}, conns: map[string][]net.Conn{}}
	srv := ensembleIn(t)
	var servers []string
	for i := range n {
		w.move(fmt.Sprintf("zk-%d", i), fmt.Sprintf("10.0.0.%d", i+1), srv)
		servers = append(servers, fmt.Sprintf("zk-%d:2181", i))
	}
	return w, strings.Join(servers, ",")
}

func ensembleIn(t *testing.T) *embedded.Server {
	srv := suite.Got(embedded.Start(embedded.Config{InMemory: true, TickTime: 500 * time.Millisecond}))(t)
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

// occupy puts a server at addresses that have no names.
func (w *town) occupy(srv *embedded.Server, addresses ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, address := range addresses {
		w.homes[address] = srv
	}
}

// rename gives names another address, which may be unresolved or unanswered.
func (w *town) rename(address string, names ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		w.names[name] = address
	}
}

const (
	unresolved = ""
	unanswered = "lookups get no answer"
)

func (w *town) leave(address string) {
	delete(w.homes, address)
	for _, c := range w.conns[address] {
		c.Close()
	}
}

func (w *town) lookup(ctx context.Context, host string) ([]string, error) {
	w.mu.Lock()
	w.lookups++
	address := w.names[host]
	w.mu.Unlock()
	switch address {
	case unanswered:
		<-ctx.Done()
		return nil, ctx.Err()
	case unresolved:
		return nil, &net.DNSError{Err: "no such host", Name: host}
	}
	return []string{address}, nil
}

func (w *town) dial(ctx context.Context, _, address string, timeout time.Duration) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(address)
	w.mu.Lock()
	w.dialled = append(w.dialled, host)
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

// asked returns the counts, and resets them.
func (w *town) asked() (dials, lookups int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	dials, lookups = len(w.dialled), w.lookups
	w.dialled, w.lookups = nil, 0
	return dials, lookups
}

func (w *town) client(t *testing.T, servers string, timeout time.Duration) *protocol.Client {
	return connect(t, servers, protocol.WithSessionTimeout(timeout), protocol.WithNet(w.dial, w.lookup))
}

func inTown(t *testing.T, n int, test func(t *testing.T, w *town, servers string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, servers := newTown(t, n)
		test(t, w, servers)
	})
}

// An ordinary rolling restart, as of a StatefulSet whose pods come back with other addresses: days
// after the client has connected, and its own server last.
func TestRollingRestartWithNewAddressesLosesNothing(t *testing.T) {
	t.Parallel()

	for _, n := range []int{3, 5} {
		for _, timeout := range []time.Duration{2 * time.Second, 6 * time.Second} {
			for round := range suite.Size(5, 2) {
				inTown(t, n, func(t *testing.T, w *town, servers string) {
					c := w.client(t, servers, timeout)
					g := suite.Hold(t, c, "/node")
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

	for _, address := range []string{unresolved, unanswered} {
		inTown(t, 3, func(t *testing.T, w *town, servers string) {
			c := w.client(t, servers, 10*time.Second)
			s, g := suite.Session(t, c), suite.Hold(t, c, "/node")
			time.Sleep(time.Hour)
			w.rename(address, "zk-0", "zk-1", "zk-2")
			w.homes["10.0.0.1"].DropConnections()
			time.Sleep(time.Minute)
			require.NoError(t, g.Err())
			require.Same(t, s, suite.Session(t, c))
		})
	}
}

// A name server that doesn't answer for one name delays no other name, and not Close.
func TestNameThatIsNotAnsweredDelaysNoOther(t *testing.T) {
	t.Parallel()
	inTown(t, 3, func(t *testing.T, w *town, servers string) {
		w.rename(unanswered, "zk-0", "zk-1")
		began := time.Now()
		c := w.client(t, servers, 4*time.Second)
		require.NoError(t, c.Close())
		require.Less(t, time.Since(began), time.Second)
	})
}

// Today another ensemble has the addresses of a dead ensemble. It knows no session of ours.
func TestClientStaysWithItsEnsemble(t *testing.T) {
	t.Parallel()
	inTown(t, 2, func(t *testing.T, w *town, servers string) {
		c := w.client(t, servers, 10*time.Second)
		s, g := suite.Session(t, c), suite.Hold(t, c, "/node")
		home := w.homes["10.0.0.1"]
		time.Sleep(time.Hour)
		other := ensembleIn(t)
		w.down()
		w.occupy(other, "10.0.0.1", "10.0.0.2")
		w.rename(unresolved, "zk-0", "zk-1")

		time.Sleep(2 * time.Second)
		require.NoError(t, g.Err(), "the other ensemble says that the session is gone")
		w.move("zk-0", "10.0.3.1", home)
		time.Sleep(time.Minute)
		require.NoError(t, g.Err())

		// Without a session there is nothing to resume, and nothing to ask at these addresses.
		w.down()
		w.occupy(other, "10.0.0.1", "10.0.0.2", "10.0.3.1")
		w.rename(unresolved, "zk-0")
		suite.Wait(t, g.Done())
		time.Sleep(time.Hour)
		require.Error(t, s.Err())
		require.NotEqual(t, protocol.Connected, c.State())
		require.ErrorContains(t, c.Close(), "could not be closed", "the other ensemble says that the session is gone")
	})
}

// A client that waits behind a broken proxy does not keep its place in line for ever. (The proxy
// passes requests on, and hangs up instead of answering.) Its attempts would prolong the life of
// its session.
func TestPlaceInLineIsNotKeptBehindABrokenProxy(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t), srv.Link(t)
		s, other := suite.Session(t, link.Client(t)), suite.Session(t, srv.Client(t))
		require.NoError(t, s.Create(t.Context(), path, nil, zk.FlagEphemeral))
		link.LoseReply(recipestest.OpConnect, 1<<20)
		srv.Embedded().DropConnections()
		_, err := other.WaitNode(suite.Within(t, 4*s.Timeout()), path, func(*zk.Stat) bool { return false })
		require.NoError(t, err, "the place in line")
		require.NoError(t, s.Err(), "no server has said anything")
		link.LoseReply(recipestest.OpConnect, 0)
	})
}

// One server accepts sessions at its neighbour's former address, and knows no session of ours. The
// other servers are away, so they are the last to be tried in each round.
func TestExpiryIsBelievedThoughOtherServersAreAway(t *testing.T) {
	t.Parallel()
	inTown(t, 3, func(t *testing.T, w *town, servers string) {
		c := w.client(t, servers, 10*time.Second)
		s := suite.Session(t, c)
		require.NoError(t, s.Create(t.Context(), "/node", nil, zk.FlagEphemeral))
		mine := w.dialled[len(w.dialled)-1] // the last one of the next round

		// Its transactions must be newer than the session's. Otherwise it would say nothing.
		other := ensembleIn(t)
		w.move("other", "10.0.9.9", other)
		ahead := w.client(t, "other:2181", 10*time.Second)

		for range 9 {
			suite.Release(t, suite.Hold(t, ahead, "/node"))
		}

		require.NoError(t, ahead.Close())
		time.Sleep(time.Second) // names were resolved some time ago
		w.asked()
		w.down()

		for i := range 3 {
			if address := fmt.Sprintf("10.0.0.%d", i+1); address != mine {
				w.occupy(other, address)
				break
			}
		}

		cut := time.Now()
		suite.Wait(t, s.Done())
		require.Less(t, time.Since(cut), 7*time.Second)
		require.ErrorContains(t, s.Err(), "expired")
		w.mu.Lock()
		defer w.mu.Unlock()
		require.Equal(t, 1, w.lookups, "of the one name")
	})
}

// A session that is lost before its credentials were sent has to be closed, too. If that fails at
// first, it waits for the next session, which must not wait for it.
func TestSessionThatIsLostAtOnceIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	inTown(t, 1, func(t *testing.T, w *town, servers string) {
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
			case 3: // after the connection that notices the loss
				c.Close()
				return nil, errors.New("connection refused")
			}

			return c, nil
		}

		c := connect(t, servers, protocol.WithSessionTimeout(4*time.Second), alice, protocol.WithNet(dial, w.lookup))
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

// A user's resolver can panic, end its goroutine, or hang. The client calls it again.
func TestResolverThatDoesNotReturn(t *testing.T) {
	t.Parallel()

	for name, fails := range map[string]func(){
		"panic": func() { panic("resolver") }, "goexit": runtime.Goexit, "hang": nil,
	} {
		t.Run(name, func(t *testing.T) {
			inTown(t, 1, func(t *testing.T, w *town, servers string) {
				over := make(chan struct{})
				var calls atomic.Int32
				defer close(over)
				c := connect(t, servers, protocol.WithNet(w.dial, func(ctx context.Context, host string) ([]string, error) {
					if first := calls.Add(1) == 1; first && name == "hang" {
						<-over
					} else if first {
						fails()
					}
					return w.lookup(ctx, host)
				}))
				require.NoError(t, c.Close())
			})
		})
	}
}

// The servers come back without their data, and behind all that the session has seen. They answer
// nothing else to it, so the client opens another session.
func TestSessionOfAnEnsembleThatHasLostItsDataEnds(t *testing.T) {
	t.Parallel()
	inTown(t, 1, func(t *testing.T, w *town, servers string) {
		c := w.client(t, servers, 4*time.Second)
		s := suite.Session(t, c)
		require.NoError(t, s.Create(t.Context(), "/node", nil, zk.FlagEphemeral))
		w.down()
		time.Sleep(time.Minute)
		w.move("zk-0", "10.0.0.1", ensembleIn(t))
		suite.Wait(t, s.Done())
		require.NotEqual(t, s.ID(), suite.Session(t, c).ID())
	})
}

// A round without a resolved name is followed by a pause, like a round without an answer.
func TestNamesThatDoNotResolveAreLookedUpOnceARound(t *testing.T) {
	t.Parallel()
	inTown(t, 5, func(t *testing.T, w *town, servers string) {
		clear(w.names)
		ctx := suite.Within(t, 20*time.Second)
		_, err := protocol.Connect(ctx, servers, protocol.WithNet(w.dial, w.lookup))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, lookups := w.asked()
		require.Less(t, lookups, 5*80)
	})
}
