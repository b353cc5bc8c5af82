package line_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// An acquirer acquires something, and returns what gives it back.
type acquirer func(ctx context.Context, c *protocol.Client, path string) (release func(context.Context) error, err error)

func acquireLock(ctx context.Context, c *protocol.Client, path string) (func(context.Context) error, error) {
	l, err := lock.New(c, path).Lock(ctx)
	return l.Unlock, err
}

func acquireRead(ctx context.Context, c *protocol.Client, path string) (func(context.Context) error, error) {
	l, err := rwlock.New(c, path).RLock(ctx)
	return l.Unlock, err
}

func acquireWrite(ctx context.Context, c *protocol.Client, path string) (func(context.Context) error, error) {
	l, err := rwlock.New(c, path).Lock(ctx)
	return l.Unlock, err
}

func acquirePermit(ctx context.Context, c *protocol.Client, path string) (func(context.Context) error, error) {
	p, err := semaphore.New(c, path, 2).Acquire(ctx)
	return p.Release, err
}

// A waiter costs its session's pings and nothing else. After a long wait, its session has to be
// confirmed besides what it needs after a short one.
func TestWaiterSendsNothingUntilItsTurnComes(t *testing.T) {
	for name, c := range map[string]struct {
		holders []acquirer
		waiter  acquirer
		granted int // requests after the release
	}{
		"lock":                     {[]acquirer{acquireLock}, acquireLock, 1},
		"reader behind a writer":   {[]acquirer{acquireWrite}, acquireRead, 1},
		"writer behind a reader":   {[]acquirer{acquireRead}, acquireWrite, 1},
		"writer behind two others": {[]acquirer{acquireRead, acquireRead}, acquireWrite, 2},
		"semaphore":                {[]acquirer{acquirePermit, acquirePermit}, acquirePermit, 2},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				path, link := srv.Root(t)+"/x", srv.Link(t)
				var releases []func(context.Context) error
				for _, acquire := range c.holders {
					release, err := acquire(suite.Lasting(t), srv.Client(t), path)
					require.NoError(t, err)
					releases = append(releases, release)
				}
				client := link.Client(t)
				s := suite.Session(t, client)
				waiting := suite.Later(func() func(context.Context) error {
					release, err := c.waiter(context.Background(), client, path)
					if err != nil {
						return nil
					}
					return release
				})
				time.Sleep(time.Second) // it watches its own node by then
				synctest.Wait()

				requests, pings := link.Count(recipestest.OpAny), link.Count(recipestest.OpPing)
				time.Sleep(10 * time.Minute)
				require.Equal(t, requests, link.Count(recipestest.OpAny))
				require.Greater(t, link.Count(recipestest.OpPing), pings+int(10*time.Minute/s.Timeout()))
				require.NoError(t, s.Err())
				require.Empty(t, waiting)

				for _, release := range releases {
					require.NoError(t, release(suite.Lasting(t)))
				}
				release := suite.Wait(t, waiting)
				require.NotNil(t, release)
				require.Equal(t, requests+c.granted, link.Count(recipestest.OpAny))
				require.NoError(t, release(suite.Lasting(t)))
			})
		})
	}
}

// A server falls silent while a contender waits, and the contender's turn comes. It is granted
// before its session ends.
func TestWaiterWhoseServerFallsSilentIsGrantedInItsSession(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, silent := srv.Root(t)+"/line", srv.Link(t)
		holder := hold(t, srv.Client(t), path)
		links, dials := []*recipestest.Link{srv.Link(t), silent}, atomic.Int32{}
		dialer := func(network, _ string, timeout time.Duration) (net.Conn, error) {
			return links[dials.Add(1)%2].Dial(network, srv.ConnectString(), timeout)
		}
		c, err := protocol.Connect(suite.Lasting(t), "a:1,b:2", protocol.WithDialer(dialer))
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		s := suite.Session(t, c)
		waiter := enter(t.Context(), lineAt(c, path), request)
		synctest.Wait()
		time.Sleep(10 * s.Timeout())

		silent.Stall()
		resign(t, holder)
		time.Sleep(s.Timeout())
		synctest.Wait()

		require.Len(t, waiter, 1)
		g := <-waiter
		require.Equal(t, s.ID(), g.Session().ID())
		release(t, g)
	})
}

// A contender whose turn has come leaves a server that answers pings, and does not confirm its
// session.
func TestServerThatDoesNotConfirmASessionIsLeft(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		holder := hold(t, srv.Client(t), path)
		gate := &suite.Gate{Op: recipestest.OpDelete} // by which a session is confirmed
		c := link.Client(t, gate.Option(link))
		s := suite.Session(t, c)
		waiter := enter(t.Context(), lineAt(c, path), request)
		synctest.Wait()
		time.Sleep(10 * s.Timeout())

		connects := link.Count(recipestest.OpConnect)
		gate.Shut()
		resign(t, holder)
		synctest.Wait()
		require.True(t, gate.Holding())
		require.Empty(t, waiter, "its session has to be confirmed")
		require.Greater(t, time.Until(s.Deadline()), s.Timeout()/2, "nothing is held")
		time.Sleep(s.Timeout() / 2)
		require.Greater(t, link.Count(recipestest.OpConnect), connects)

		gate.Open()
		release(t, suite.Wait(t, waiter))
		require.NoError(t, s.Err())
	})
}
