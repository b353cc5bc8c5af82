package election_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestMain(m *testing.M) { suite.Main(m) }

func campaign(t *testing.T, c *protocol.Client, path, value string) *election.Term {
	t.Helper()
	return suite.Must(t, func(ctx context.Context) (*election.Term, error) {
		return election.New(c, path).Campaign(ctx, []byte(value))
	})
}

// stand makes a candidate of this name campaign, and returns when an onlooker sees it in line
// behind n others. The onlooker has a client of its own, so that c sends the requests of the
// candidate alone.
func stand(t *testing.T, onlooker, c *protocol.Client, path, name string, n int, wait *suite.Group) <-chan *election.Term {
	t.Helper()
	won := make(chan *election.Term, 1)
	wait.Go(func() error {
		term, err := election.New(c, path).Campaign(t.Context(), []byte(name))
		if err != nil {
			close(won)
			return err
		}
		won <- term
		return nil
	})

	suite.Await(t, n+1, election.New(onlooker, path).Candidates)
	return won
}

// again returns how often the client behind link has reconnected. Each time the client repeats the
// requests that the broken connection lost, receives notifications again, and lists the line again.
func again(t *testing.T, link *recipestest.Link) int {
	t.Helper()
	suite.Steady(t, link)
	return link.Count(recipestest.OpConnect) - 1
}

func resign(t *testing.T, term *election.Term) {
	t.Helper()
	require.NotNil(t, term)
	require.NoError(t, term.Resign(t.Context()))
}

// values returns what the candidates campaign with, in order.
func values(line []election.Candidate) (all []string) {
	for _, c := range line {
		all = append(all, string(c.Value))
	}
	return all
}

// observed runs Observe and sends its changes, until ctx or the test ends.
func observed(t *testing.T, ctx context.Context, e *election.Election) <-chan string {
	ctx, cancel := context.WithCancel(ctx)
	changes := make(chan string, 1000)
	var wait sync.WaitGroup
	wait.Go(func() {
		defer close(changes)
		for l, err := range e.Observe(ctx) {
			switch {
			case err != nil:
				changes <- "error: " + err.Error()
			case l.Vacant():
				changes <- "vacant"
			default:
				changes <- string(l.Value)
			}
		}
	})

	t.Cleanup(func() { cancel(); wait.Wait() })
	return changes
}

// next returns the next value of a channel, and fails the test if none comes.
func next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(suite.Limit):
		require.FailNow(t, "no value came")
		panic("unreachable")
	}
}

// A crowd is some observers behind one link, whose requests take a millisecond of virtual time.
type crowd struct {
	link    *recipestest.Link
	client  *protocol.Client
	changes []<-chan string
	stop    context.CancelFunc
}

func newCrowd(t *testing.T, srv *recipestest.Server, path string, n int) *crowd {
	c := &crowd{link: srv.Link(t)}
	c.client = c.link.Client(t)
	c.link.Delay(time.Millisecond)
	e := election.New(c.client, path)
	ctx, stop := context.WithCancel(t.Context())
	c.stop = stop
	for range n {
		c.changes = append(c.changes, observed(t, ctx, e))
	}
	return c
}

// sees waits until all have seen a change, and returns what they have asked since the count before.
func (c *crowd) sees(t *testing.T, want string, before int) (requests int) {
	t.Helper()
	for _, changes := range c.changes {
		require.Equal(t, want, next(t, changes))
	}
	time.Sleep(time.Second)
	for _, changes := range c.changes {
		require.Empty(t, changes)
	}
	return c.requests() - before
}

func (c *crowd) requests() int { return c.link.Count(recipestest.OpAny) }

// lineUp makes candidates with these names campaign, one after the other.
func lineUp(t *testing.T, onlooker, c *protocol.Client, path, names string, wait *suite.Group) (won []<-chan *election.Term) {
	for i, name := range strings.Fields(names) {
		won = append(won, stand(t, onlooker, c, path, name, i, wait))
	}
	return won
}

// impatient returns a view of the client whose back-off ends at the first pause.
func impatient(c *protocol.Client) *protocol.Client {
	return c.With(protocol.WithBackOff(func() backoff.BackOff { return &backoff.StopBackOff{} }))
}

// loseData returns a client of an ensemble that loses its data when lose is called. Another server
// then takes the place of the first one, and its transactions have smaller numbers.
func loseData(t *testing.T, before *recipestest.Server) (c *protocol.Client, after *recipestest.Server, lose func()) {
	after = recipestest.Start(t, recipestest.WithInMemory())
	links := [2]*recipestest.Link{before.Link(t), after.Link(t)}
	var at atomic.Int32
	c = before.Client(t, protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		return links[at.Load()].Dial(network, address, timeout)
	}))
	for range 100 {
		_, err := suite.Session(t, c).EnsurePath(t.Context(), "/many")
		require.NoError(t, err)
		require.NoError(t, suite.Session(t, c).Delete(t.Context(), "/many", -1))
	}
	return c, after, func() {
		at.Store(1)
		links[0].Cut()
	}
}

// A listening is a use of Listen in a goroutine.
type listening struct {
	states <-chan election.State
	stop   func()
	ended  <-chan error
}

// listen listens until the test ends at the latest. It checks what holds for each call.
func listen(t *testing.T, e *election.Election, value string) listening {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	states := make(chan election.State, 1000)
	var calling atomic.Bool
	var last election.State
	told := false

	ended := suite.Later(func() error {
		return e.Listen(ctx, []byte(value), func(s election.State) {
			switch again := told && last.Term == s.Term && last.Leader.Token == s.Leader.Token; {
			case calling.Swap(true):
				t.Error("two calls at a time")
			case last.Term != nil && s.Term != nil && last.Term != s.Term:
				t.Error("no call between two terms")
			case s.Term != nil && s.Leader.Token != s.Term.Token():
				t.Error("leads beside another leader")
			case again && string(last.Leader.Value) == string(s.Leader.Value):
				t.Error("nothing has changed")
			}
			last, told = s, true
			states <- s
			calling.Store(false)
		})
	})
	t.Cleanup(stop)
	return listening{states, stop, ended}
}

// until returns the first state from now on that is as wanted.
func (l listening) until(t *testing.T, wanted func(election.State) bool) election.State {
	t.Helper()
	for {
		if s := next(t, l.states); wanted(s) {
			return s
		}
	}
}

func leads(s election.State) bool { return s.Term != nil }

func waits(s election.State) bool { return s.Term == nil }

// led reports whether another candidate leads, with this value.
func led(value string) func(election.State) bool {
	return func(s election.State) bool { return s.Term == nil && string(s.Leader.Value) == value }
}

// leaderOf returns what others see of a term.
func leaderOf(t *election.Term, value string) election.Leader {
	owner, _, _ := recipe.ParseOwner(t.Node())
	return election.Leader{Value: []byte(value), Token: t.Token(), Node: t.Node(), Session: owner.Session}
}
