package election_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestMain(m *testing.M) {
	if config := os.Getenv(candidatesEnv); config != "" {
		os.Exit(runCandidates(config))
	}
	suite.Main(m)
}

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

// A ledger records the terms of one election, in the order in which they were won.
type ledger struct {
	mu    sync.Mutex
	terms []*election.Term
}

// won records a new term. All earlier ones must be over, as their own leaders see it. A term whose
// session is ended behind its back, earlier than a server would, learns of it too late and is not
// recorded.
func (b *ledger) won(term *election.Term, betrayed bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if term.Err() != nil {
		return nil // it was over before it could be recorded
	}

	for _, earlier := range b.terms {
		if earlier.Err() == nil && term.Err() == nil {
			return fmt.Errorf("two leaders: %s and %s", earlier.Node(), term.Node())
		}
		if earlier.Token() >= term.Token() {
			return fmt.Errorf("token %d after %d", term.Token(), earlier.Token())
		}
	}

	if !betrayed {
		b.terms = append(b.terms, term)
	}

	return nil
}
