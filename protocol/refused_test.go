package protocol_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

const refused = -102 // no permission

func TestEnsurePathEndsWhereAParentIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		s := session(t, link.Client(t))
		suite.Keep(t, srv.Client(t), root)
		link.Fail(recipestest.OpCreateContainer, root+"/a", refused, 1)
		_, err := s.EnsurePath(lasting(t), root+"/a/b")
		require.ErrorIs(t, err, zk.ErrNoAuth)
	})
}

// Without a Sync no answer says that a node is there.
func TestVerifyThatIsRefusedFails(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/line"
		g := hold(t, link.Client(t), path)
		link.Fail(recipestest.OpSync, path+"/"+g.Node(), refused, 1)
		require.ErrorIs(t, g.Verify(lasting(t)), zk.ErrNoAuth)
		require.NoError(t, g.Verify(lasting(t)))
		release(t, g)
	})
}

// The answer to the create is lost, and what it has left is looked for behind a Sync.
func TestCreateThatMayNotBeLookedForFails(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/line"
		s := session(t, link.Client(t))
		suite.Keep(t, srv.Client(t), path)
		link.LoseReply(recipestest.OpCreate, 1)
		link.Fail(recipestest.OpGetChildren, path, refused, 1)
		_, err := s.CreateOwn(lasting(t), recipe.OwnNode{Dir: path, Prefix: s.NewOwner().String() + "-"})
		require.ErrorIs(t, err, zk.ErrNoAuth)
		requireNoChildren(t, s, path)
	})
}

func TestRecheckThatIsRefusedFails(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)
		s := session(t, link.Client(t))
		suite.Keep(t, srv.Client(t), path)
		w := s.Watch(path)
		_, err := w.Ready(lasting(t))
		require.NoError(t, err)
		link.Fail(recipestest.OpExists, path, refused, 1)
		same, err := w.Recheck(lasting(t))
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.False(t, same)
		require.True(t, w.Unchanged())
	})
}

// An attempt that is to be repeated is given up with the back-off.
func TestAttemptsEndWithTheBackOff(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t, protocol.WithBackOff(func() backoff.BackOff { return &backoff.StopBackOff{} }))
		attempts := 0
		_, err := recipe.AcrossSessions(lasting(t), recipe.New(c, "test", "/x"),
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
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
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

// A client closes its session over the connection that it has.
func TestCloseNeedsNoOtherConnection(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		session(t, c)
		require.NoError(t, c.Close())
		synctest.Wait()
		require.Equal(t, 1, link.Count(recipestest.OpConnect))
	})
}

// Work goes on after it has let its caller go.
func TestWorkLetsItsCallerGo(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		s, refusal, goOn, done := session(t, srv.Client(t)), errors.New("refused"), make(chan struct{}), make(chan struct{})
		_, err := recipe.Detach(lasting(t), s, func(ctx context.Context, s *recipe.Session) (struct{}, error) {
			s.LetGo(refusal)
			<-goOn
			return struct{}{}, nil
		}, func(struct{}) { close(done) })
		require.Equal(t, refusal, err)
		close(goOn)
		wait(t, done)
	})
}

func TestRefusalsAreLogged(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const throttled = -127
		var log bytes.Buffer
		link := srv.Link(t)
		s := session(t, link.Client(t, protocol.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))))
		link.Fail(recipestest.OpExists, "", throttled, 1)
		_, err := s.Exists(lasting(t), "/")
		require.NoError(t, err)
		synctest.Wait()
		require.Contains(t, log.String(), "server refuses requests, which are tried again")
	})
}

func TestWaitForChildrenThatMayNotBeListedFails(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root := srv.Link(t), srv.Root(t)
		s := session(t, link.Client(t))
		suite.Keep(t, srv.Client(t), root)
		link.Fail(recipestest.OpGetChildren, root, refused, 1)
		err := s.WaitChildren(lasting(t), root, func([]string) bool { return true })
		require.ErrorIs(t, err, zk.ErrNoAuth)
	})
}

func TestWatchOfAClosedClientFails(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		s := session(t, c)
		require.NoError(t, c.Close())
		_, err := s.Watch("/").Ready(t.Context())
		require.ErrorIs(t, err, protocol.ErrClosed)
	})
}

// The context of a grant may be given up before the grant is.
func TestContextOfAGrantCanBeCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		g := hold(t, srv.Client(t), srv.Root(t)+"/line")
		ctx, cancel := g.Context(t.Context())
		require.NoError(t, ctx.Err())
		cancel()
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.NoError(t, g.Err())
		release(t, g)
	})
}

// A refusal that a member can give by itself is no proof of a quorum, and neither is the answer to a
// transaction that was not executed.
func TestRefusalsDoNotRenewTrust(t *testing.T) {
	const sessionExpired = -112
	for name, ask := range map[string]func(t *testing.T, link *recipestest.Link, s *recipe.Session, path string){
		"none": func(*testing.T, *recipestest.Link, *recipe.Session, string) {},
		"delete": func(t *testing.T, _ *recipestest.Link, s *recipe.Session, path string) {
			require.ErrorIs(t, s.Delete(lasting(t), path, 7), zk.ErrNoAuth)
		},
		"transaction": func(t *testing.T, link *recipestest.Link, s *recipe.Session, path string) {
			link.FailPart(1, sessionExpired)
			_, err := s.Conn().Multi(&zk.SetDataRequest{Path: s.Path(path), Version: -1})
			require.ErrorIs(t, err, zk.ErrSessionExpired)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				link, path := srv.Link(t), srv.Root(t)+"/line"
				suite.Keep(t, srv.Client(t), path)
				g := hold(t, link.Client(t), path)
				s := g.Session()
				link.Fail(recipestest.OpDelete, "", refused, 1<<20)
				begin := time.Now()
				for g.Err() == nil && time.Since(begin) < time.Minute {
					ask(t, link, s, path)
					time.Sleep(s.Timeout() / 20)
				}
				require.ErrorIs(t, g.Err(), protocol.ErrUntrusted)
				require.LessOrEqual(t, time.Since(begin), s.Timeout())
				link.Fail(recipestest.OpDelete, "", refused, 0)
			})
		})
	}
}
