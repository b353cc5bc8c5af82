package protocol_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// What the server says of a second attempt says nothing of the first one, whose answer was lost.
func TestRefusalAfterALostAnswerIsUncertain(t *testing.T) {
	for name, c := range map[string]struct {
		op  recipestest.Op
		try func(t *testing.T, s *recipe.Session, path string) error
		err error
	}{
		"create": {recipestest.OpCreate, func(t *testing.T, s *recipe.Session, path string) error {
			return s.Create(lasting(t), path+"/x", nil, 0)
		}, zk.ErrNodeExists},
		"set": {recipestest.OpSetData, func(t *testing.T, s *recipe.Session, path string) error {
			_, err := s.Set(lasting(t), path, []byte("x"), 0)
			return err
		}, zk.ErrBadVersion},
		"delete": {recipestest.OpDelete, func(t *testing.T, s *recipe.Session, path string) error {
			return s.Delete(lasting(t), path, 0)
		}, zk.ErrNoNode},
		"multi": {recipestest.OpMulti, func(t *testing.T, s *recipe.Session, path string) error {
			_, err := s.Multi(lasting(t), &zk.CheckVersionRequest{Path: path, Version: 0}, &zk.SetDataRequest{Path: path, Version: 0})
			return err
		}, zk.ErrBadVersion},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				link, path := srv.Link(t), srv.Root(t)
				s := session(t, link.Client(t))
				_, err := s.EnsurePath(lasting(t), path)
				require.NoError(t, err)
				link.LoseReply(c.op, 1)
				err = c.try(t, s, path)
				require.ErrorIs(t, err, c.err)
				require.ErrorIs(t, err, protocol.ErrUncertain)

				_, err = s.Set(lasting(t), path+"/none", nil, 7)
				require.NotErrorIs(t, err, protocol.ErrUncertain)
			})
		})
	}
}

// Once it is settled that an attempt was not executed, what the server says of the next one is the
// whole answer.
func TestRefusalAfterASettledAttemptIsCertain(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root := srv.Link(t), srv.Root(t)
		s := session(t, link.Client(t))
		link.LoseReply(recipestest.OpCreate, 1)
		_, err := recipe.DoOnce(lasting(t), s, create(s, root, 0), func(context.Context) (string, bool, error) { return "", false, nil })
		require.ErrorIs(t, err, zk.ErrNodeExists)
		require.NotErrorIs(t, err, protocol.ErrUncertain)
	})
}

// An observer or a listener that is being called does not hold up Close.
func TestCloseDoesNotWaitForACallUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		release := make(chan struct{})
		c := srv.Client(t, protocol.WithStateListener(func(protocol.State) { <-release }))
		session(t, c)
		time.Sleep(time.Second)
		began := time.Now()
		require.NoError(t, c.Close())
		require.Less(t, time.Since(began), time.Second)
		close(release)
	})
}
