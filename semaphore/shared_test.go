package semaphore_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// The waiters of one session that a release wakes list the line together.
func TestWaitersOfASessionShareAListing(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const permits, waiters = 30, 40
		path, link := srv.Root(t)+"/s", srv.Link(t)
		holder, s := semaphore.New(srv.Client(t), path, permits), semaphore.New(link.Client(t), path, permits)
		var held []*semaphore.Permit
		for range permits {
			held = append(held, acquire(t, holder))
		}
		got := make(chan *semaphore.Permit, waiters)
		var wait suite.Group
		for range waiters {
			wait.Go(func() error {
				p, err := s.Acquire(t.Context())
				got <- p
				return err
			})
		}
		time.Sleep(time.Second)
		link.Delay(time.Millisecond) // so that all that are woken ask before there is an answer
		before := link.Count(recipestest.OpGetChildren)
		require.NotZero(t, before)

		release(t, held[permits-1])
		next := <-got
		time.Sleep(time.Second)
		require.LessOrEqual(t, link.Count(recipestest.OpGetChildren)-before, 2, "of %d that were woken", permits)
		require.Empty(t, got)

		release(t, next)
		release(t, held[:permits-1]...)
		for range waiters - 1 {
			release(t, <-got)
		}
		require.NoError(t, wait.Wait())
	})
}

// A waiter that gives up, or whose connection breaks, at any step of a listing that others share
// does not take them with it.
func TestSharedListingSurvivesTheWaiterThatBeganIt(t *testing.T) {
	const waiters = 4
	for quitter := range waiters {
		t.Run(fmt.Sprint(quitter), func(t *testing.T) {
			t.Parallel()
			suite.Sweep(t, func(step int) (met bool) {
				synctest.Test(t, func(t *testing.T) {
					srv := recipestest.Start(t, recipestest.WithInMemory())
					path, link := srv.Root(t)+"/s", srv.Link(t)
					s, other := semaphore.New(link.Client(t), path, 2), semaphore.New(srv.Client(t), path, 2)
					held := []*semaphore.Permit{acquire(t, other), acquire(t, other)}
					link.Delay(time.Millisecond)
					ctx, giveUp := context.WithCancel(t.Context())
					over := suite.At(link, step, func() { giveUp(); link.Cut(); time.AfterFunc(time.Second, link.Heal) })

					errs := make(chan error, waiters)
					for i := range waiters {
						go func() {
							if i != quitter {
								errs <- s.Do(t.Context(), func(context.Context, *semaphore.Permit) error { return nil })
								return
							}
							s.Do(ctx, func(context.Context, *semaphore.Permit) error { return nil })
							errs <- nil
						}()
						time.Sleep(time.Microsecond) // they come in this order
					}
					time.Sleep(5 * time.Millisecond)
					release(t, held[1])
					for range waiters {
						require.NoError(t, <-errs, "step %d", step)
					}
					met = over()
					giveUp()
					link.Heal()
					time.Sleep(time.Minute)
					contenders(t, other, 1)
					release(t, held[0])
				})
				return met
			})
		})
	}
}

// Neither a waiter that shares a listing, nor the one that is to make it, stays beyond its ctx.
func TestWaiterLeavesAListingThatIsUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path, gate := srv.Root(t)+"/s", &suite.Gate{Op: recipestest.Op(zkwire.OpGetChildren2)}
		s := semaphore.New(srv.Client(t, gate.Option(srv.Link(t))), path, 1)
		other := semaphore.New(srv.Client(t), path, 1)
		held := acquire(t, other)

		gate.Shut()
		first := later(t.Context(), s)
		synctest.Wait() // it lists
		quitting, quit := context.WithCancel(t.Context())
		second := later(quitting, s)
		synctest.Wait() // it is to list after that
		sharing, leave := context.WithCancel(t.Context())
		third := later(sharing, s)
		synctest.Wait()
		leave()
		synctest.Wait() // no time passes
		left := len(third) == 1
		quit()
		synctest.Wait()
		left = left && len(second) == 1

		gate.Open()
		require.True(t, left)
		release(t, held)
		release(t, <-first)
		contenders(t, other, 0)
	})
}

// A waiter lists the line before a Resize, and reads its own node after it.
func TestListingThatIsOlderThanAResizeIsNotBelieved(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/s", srv.Link(t)
		var slow *slowReads
		c := link.Client(t, protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			conn, err := link.Dial(network, address, timeout)
			slow = &slowReads{Conn: conn}
			return slow, err
		}))
		s := semaphore.New(srv.Client(t), path, 1)
		held := acquire(t, s)
		slow.hold()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		waiting := suite.Later(func() error { _, err := semaphore.New(c, path, 1).Acquire(ctx); return err })
		synctest.Wait()
		require.Equal(t, 1, link.Count(recipestest.OpGetChildren))

		require.NoError(t, s.Resize(t.Context(), 2))
		slow.resume(t)
		require.ErrorIs(t, <-waiting, semaphore.ErrPermits)
		release(t, held)
	})
}

// slowReads is a connection that holds back requests to read a node, and lets later ones overtake
// them.
type slowReads struct {
	net.Conn
	mu      sync.Mutex // protects what follows
	holding bool
	held    []byte
}

func (s *slowReads) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holding = true
}

func (s *slowReads) resume(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NotEmpty(t, s.held)
	s.holding = false
	_, err := s.Conn.Write(s.held)
	require.NoError(t, err)
}

func (s *slowReads) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rest := p; s.holding && len(rest) > 0; {
		size := 4 + binary.BigEndian.Uint32(rest)
		frame := rest[:size]
		rest = rest[size:]
		if recipestest.Op(binary.BigEndian.Uint32(frame[8:])) == recipestest.OpGetData {
			s.held = append(s.held, frame...)
		} else if _, err := s.Conn.Write(frame); err != nil {
			return 0, err
		}
	}
	if s.holding {
		return len(p), nil
	}
	return s.Conn.Write(p)
}
