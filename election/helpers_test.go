package election_test

import (
	"context"
	"sync"
	"testing"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

func TestMain(m *testing.M) { suite.Main(m) }

func campaign(t *testing.T, c *protocol.Client, path, value string) *election.Term {
	t.Helper()
	return suite.Must(t, func(ctx context.Context) (*election.Term, error) {
		return election.New(c, path).Campaign(ctx, []byte(value))
	})
}

// stand makes a candidate of this name campaign, and returns when it is in line behind n others.
// The term is nil if the campaign fails.
func stand(t *testing.T, c *protocol.Client, path, name string, n int) <-chan *election.Term {
	t.Helper()
	e := election.New(c, path)
	won := suite.Later(func() *election.Term {
		term, _ := e.Campaign(t.Context(), []byte(name))
		return term
	})
	suite.Await(t, n+1, e.Candidates)
	return won
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
	var last election.State
	told := false

	ended := suite.Later(func() error {
		return e.Listen(ctx, []byte(value), func(s election.State) {
			switch again := told && last.Term == s.Term && last.Leader.Token == s.Leader.Token; {
			case last.Term != nil && s.Term != nil && last.Term != s.Term:
				t.Error("no call between two terms")
			case s.Term != nil && s.Leader.Token != s.Term.Token():
				t.Error("leads beside another leader")
			case again && string(last.Leader.Value) == string(s.Leader.Value):
				t.Error("nothing has changed")
			}
			last, told = s, true
			states <- s
		})
	})
	t.Cleanup(stop)
	return listening{states, stop, ended}
}

// until returns the first state from now on that is as wanted.
func (l listening) until(t *testing.T, wanted func(election.State) bool) election.State {
	t.Helper()
	for {
		if s := suite.Wait(t, l.states); wanted(s) {
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

// impatient returns a view of the client whose back-off ends at the first pause.
func impatient(c *protocol.Client) *protocol.Client {
	return c.With(protocol.WithBackOff(func() backoff.BackOff { return &backoff.StopBackOff{} }))
}
