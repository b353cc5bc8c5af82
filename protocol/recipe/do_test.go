package recipe_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// The connection breaks once, and then the server says nothing any more.
func TestDeadlineDuringAnAttemptSaysWhatTheLastDiedOf(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		s := suite.Session(t, c)
		calls := 0

		_, err := recipe.Do(suite.Within(t, time.Second), s, func(c *zk.Conn) (bool, error) {
			if calls++; calls == 1 {
				return false, zk.ErrSessionMoved
			}

			link.Stall()
			there, _, err := c.Exists("/")
			return there, err
		})

		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, zk.ErrSessionMoved.Error())
		link.Heal()
	})
}

// An answer to the second attempt says nothing about the first attempt, whose answer was lost.
// (Creates are cells of the law "cut".)
func TestRefusalAfterALostAnswerIsUncertain(t *testing.T) {
	for name, c := range map[string]struct {
		op   recipestest.Op
		want error
		try  func(ctx context.Context, s *recipe.Session, path string) error
	}{
		"set": {recipestest.OpSetData, zk.ErrBadVersion, func(ctx context.Context, s *recipe.Session, path string) error {
			_, err := s.Set(ctx, path, []byte("x"), 0)
			return err
		}},
		"delete": {recipestest.OpDelete, zk.ErrNoNode, func(ctx context.Context, s *recipe.Session, path string) error {
			return s.Delete(ctx, path, 0)
		}},
		"multi": {recipestest.OpMulti, zk.ErrBadVersion, func(ctx context.Context, s *recipe.Session, path string) error {
			_, err := s.Multi(ctx, &zk.CheckVersionRequest{Path: path, Version: 0}, &zk.SetDataRequest{Path: path, Version: 0})
			return err
		}},
	} {
		suite.Run(t, name, func(t *testing.T, srv *recipestest.Server) {
			link, path := srv.Link(t), srv.Root(t)
			s := suite.Session(t, link.Client(t))
			suite.Ensure(t, s, path)
			link.LoseReply(c.op, 1)
			err := c.try(suite.Lasting(t), s, path)
			require.ErrorIs(t, err, c.want)
			require.ErrorIs(t, err, protocol.ErrUncertain)

			require.NotErrorIs(t, suite.Err(s.Set(suite.Lasting(t), path+"/none", nil, 7)), protocol.ErrUncertain)
		})
	}
}

// An attempt that is to be repeated is given up with the back-off.
func TestAttemptsEndWithTheBackOff(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t, protocol.WithBackOff(func() backoff.BackOff { return &backoff.StopBackOff{} }))
		attempts := 0
		_, err := recipe.AcrossSessions(suite.Lasting(t), recipe.New(c, "test", "/x"),
			func(*recipe.Session) (struct{}, error) {
				if attempts++; attempts > 1 {
					return struct{}{}, nil
				}
				return struct{}{}, recipe.Again(errors.New("once more"))
			})
		require.ErrorContains(t, err, "given up: once more")
	})
}

// An attempt that fails because ctx has ended need not say so.
func TestAttemptThatCtxHasEndedSaysSo(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		ctx, cancel := context.WithCancel(t.Context())
		failed := errors.New("failed")
		_, err := recipe.AcrossSessions(ctx, recipe.New(srv.Client(t), "test", "/x"),
			func(*recipe.Session) (struct{}, error) {
				cancel()
				return struct{}{}, failed
			})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, failed)
	})
}

// An outcome that settle has found is certain. So is the answer to the next attempt, if settle has
// found that the one before wasn't executed.
func TestSettleAsksOnlyWhereTheOutcomeIsUnknown(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		link, root, reason := srv.Link(t), srv.Root(t), errors.New("the reason")
		s := suite.Session(t, link.Client(t))
		suite.Keep(t, srv.Client(t), root)
		for _, c := range []struct {
			path  string
			flags int32
			lost  int    // replies
			found string // by settle
			fails error  // settle
			want  error
			asked int
		}{
			{root + "/s-", zk.FlagSequence, 0, "", nil, nil, 0},
			{root, 0, 0, "", nil, zk.ErrNodeExists, 0},
			{root, 0, 1, "", nil, zk.ErrNodeExists, 1},
			{root + "/s-", zk.FlagSequence, 1, "found", nil, nil, 1},
			{root + "/s-", zk.FlagSequence, 2, "", nil, nil, 2},
			{root + "/s-", zk.FlagSequence, 1, "", reason, reason, 1},
		} {
			asked := 0
			link.LoseReply(recipestest.OpCreate, c.lost)
			made, err := recipe.DoOnce(suite.Lasting(t), s, create(s, c.path, c.flags), func(context.Context) (string, bool, error) {
				asked++
				return c.found, c.found != "", c.fails
			})
			require.ErrorIs(t, err, c.want)
			require.NotErrorIs(t, err, protocol.ErrUncertain)
			require.Equal(t, c.asked, asked)
			require.Equal(t, err == nil, made != "")
			require.Contains(t, made, c.found)
		}
	})
}

func TestRefusalSaysWhatIsMissing(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/hidden"
		s := suite.Session(t, link.Client(t))
		for code, want := range map[zkwire.Code]string{
			zkwire.CodeNoAuth:       "no permission to read " + path,
			zkwire.CodeAuthRequired: "authentication required: see WithAuth (error -124)",
		} {
			link.Fail(recipestest.OpExists, path, int32(code), 1)
			stat, err := s.Exists(t.Context(), path)
			require.ErrorContains(t, err, want)
			require.Nil(t, stat)
		}

		suite.Got(s.Conn().SetACL("/", zk.WorldACL(zk.PermRead|zk.PermAdmin), -1))(t)
		_, err := s.EnsurePath(t.Context(), "/a")
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorContains(t, err, "no permission to create /a: the ACL of / does not allow it")
	})
}

// A back-off paces attempts. It doesn't count how long a contender has waited in line.
func TestBackOffBeginsWithTheFailureNotWithTheWait(t *testing.T) {
	for name, newBackOff := range map[string]func() backoff.BackOff{
		"with a longest time": func() backoff.BackOff {
			return backoff.NewExponentialBackOff(backoff.WithMaxElapsedTime(time.Minute))
		},
		"with a number of times": func() backoff.BackOff {
			return backoff.WithMaxRetries(backoff.NewConstantBackOff(time.Second), 1)
		},
	} {
		suite.Run(t, name, func(t *testing.T, srv *recipestest.Server) {
			path := srv.Root(t) + "/line"
			g := suite.Hold(t, srv.Client(t), path)
			c := srv.Client(t, protocol.WithBackOff(newBackOff))
			ctx := suite.Within(t, 24*time.Hour)
			waiter := suite.Later(func() error {
				g, err := suite.LineAt(c, path).Enter(ctx, suite.Request)
				if err == nil {
					err = g.Release(ctx)
				}
				return err
			})

			for range 3 {
				time.Sleep(time.Hour)
				srv.ExpireSession(suite.Session(t, c).ID())
				synctest.Wait()
			}
			time.Sleep(time.Hour)
			suite.Release(t, g)

			require.NoError(t, suite.Wait(t, waiter))
		})
	}
}
