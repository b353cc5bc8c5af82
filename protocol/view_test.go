package protocol_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// retries counts what an observer and a logger hear of repeated requests.
type retries struct{ observed, logged atomic.Int32 }

func (r *retries) Observe(e protocol.Event) {
	if e.Kind == protocol.EventRetried {
		r.observed.Add(1)
	}
}

func (r *retries) Enabled(context.Context, slog.Level) bool { return true }
func (r *retries) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *retries) WithGroup(string) slog.Handler            { return r }
func (r *retries) Handle(_ context.Context, l slog.Record) error {
	if l.Message == "trying again" {
		r.logged.Add(1)
	}
	return nil
}

func TestRetriesUseTheOptionsOfTheView(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/line"
		link := srv.Link(t)
		dialer, creates := breaking(link, recipestest.OpCreate)
		base, view := new(retries), new(retries)
		var pauses atomic.Int32
		c := link.Client(t, dialer, protocol.WithObserver(base), protocol.WithLogger(slog.New(base)))
		v := c.With(protocol.WithObserver(view), protocol.WithLogger(slog.New(view)),
			protocol.WithBackOff(func() backoff.BackOff {
				pauses.Add(1)
				return backoff.NewConstantBackOff(time.Millisecond)
			}))
		require.NoError(t, hold(t, v, path).Release(lasting(t)))

		before := pauses.Load()
		creates.Store(2)
		g := hold(t, v, path)
		synctest.Wait()

		require.Zero(t, creates.Load())
		require.Greater(t, pauses.Load(), before, "the back-off of the view")
		require.Positive(t, view.observed.Load())
		require.Positive(t, view.logged.Load())
		require.Zero(t, base.observed.Load())
		require.Zero(t, base.logged.Load())
		require.NoError(t, g.Release(lasting(t)))
	})
}

func TestParentsHaveTheACLOfTheView(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		c, root := srv.Client(t, protocol.WithAuth("digest", []byte("alice:secret"))), srv.Root(t)
		acl := zk.DigestACL(zk.PermAll, "alice", "secret")
		s := session(t, c.With(protocol.WithACL(acl)))

		created, err := s.EnsurePath(lasting(t), root+"/a/b")

		require.NoError(t, err)
		require.True(t, created)
		for _, path := range []string{root + "/a", root + "/a/b"} {
			got, _, err := s.Conn().GetACL(s.Path(path))
			require.NoError(t, err)
			require.Equal(t, acl, got, path)
		}
	})
}
