package election_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A leadership is a term in the shape of a lease.
type leadership struct{ *election.Term }

func (l leadership) Unlock(ctx context.Context) error { return l.Resign(ctx) }

// asLock returns an election as a locker of the common suite. A lock at the same path provides the
// verbs that an election lacks.
func asLock(c *protocol.Client, path string) suite.Locker {
	e, m := election.New(c, path), lock.New(c, path)
	campaign := suite.Leases(func(ctx context.Context) (leadership, error) {
		t, err := e.Campaign(ctx, nil)
		return leadership{t}, err
	})

	return suite.Locker{
		Lock:    campaign,
		Block:   suite.Leases(m.Lock),
		TryLock: suite.Leases(m.TryLock),
		Do: func(ctx context.Context, fn func(context.Context, suite.Lease) error) (err error) {
			t, err := e.Campaign(ctx, nil)
			if err != nil {
				return err
			}
			held, cancel := t.Context(ctx)
			defer func() {
				cancel()
				err = errors.Join(err, t.Resign(context.WithoutCancel(ctx)))
			}()
			return fn(held, leadership{t})
		},
		Contenders: func(ctx context.Context) (nodes []string, err error) {
			line, err := e.Candidates(ctx)
			for _, c := range line {
				nodes = append(nodes, c.Node)
			}
			return nodes, err
		},
		Break: e.Break,
	}
}

func TestElectionIsAFairLock(t *testing.T) {
	suite.Conform(t, map[string]suite.NewLocker{"Campaign": asLock}, lock.ErrLocked)
}

func TestElectionAndLockOnOnePathAreTheSameThing(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/same"
		m, e := lock.New(c, path, lock.WithData([]byte("lock"))), election.New(c, path)
		var wait suite.Group
		leader := campaign(t, srv.Client(t), path, "leader")
		_, err := m.TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrLocked)
		locked := make(chan *lock.Lease, 1)
		wait.Go(func() error {
			l, err := m.Lock(t.Context())
			locked <- l
			return err
		})

		suite.Await(t, 2, m.Contenders)
		last := stand(t, c, srv.Client(t), path, "last", 2, &wait)
		require.Equal(t, []string{"leader", "lock", "last"}, values(suite.Await(t, 3, e.Candidates)))
		resign(t, leader)
		l := next(t, locked)
		require.Greater(t, l.Token(), leader.Token())
		now, err := e.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, election.Leader{Value: []byte("lock"), Token: l.Token()}, now)
		require.NoError(t, l.Unlock(t.Context()))
		term := next(t, last)
		require.Greater(t, term.Token(), l.Token())
		resign(t, term)
		require.NoError(t, wait.Wait())
	})
}
