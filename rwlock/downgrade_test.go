package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

func TestDowngradeLetsReadersInAndKeepsWritersOut(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/down"
		link := srv.Link(t)
		m := rwlock.New(link.Client(t), path, rwlock.WithData([]byte("mine")))
		watcher := rwlock.New(srv.Client(t), path)
		writing := must(t, write, m)
		var wait group
		reader := enter(t, &wait, read, watcher, watcher, 2)
		writer := enter(t, &wait, write, rwlock.New(srv.Client(t), path), watcher, 3)

		work, cancel := writing.Context(t.Context())
		defer cancel()
		multis := link.Count(recipestest.OpMulti)
		reading, err := writing.Downgrade(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, link.Count(recipestest.OpMulti)-multis)
		require.False(t, reading.Exclusive())
		require.True(t, writing.Exclusive())
		require.ErrorIs(t, writing.Err(), protocol.ErrReleased)
		<-work.Done()
		require.ErrorIs(t, context.Cause(work), protocol.ErrReleased)
		require.NoError(t, writing.Unlock(t.Context()), "does nothing")
		require.NoError(t, reading.Err())

		other := <-reader
		require.NoError(t, reading.Err(), "both read")
		line := awaitContenders(t, watcher, 3)
		require.Equal(t, reading.Node(), line[0].Node, "it has the writer's place")
		require.Equal(t, "mine", string(line[0].Data))
		require.Equal(t, strings.ReplaceAll(writing.Node(), "write-", "read-"), reading.Node())
		require.False(t, line[0].Exclusive)
		unlock(t, other)
		_, err = watcher.TryLock(t.Context())
		require.ErrorIs(t, err, rwlock.ErrLocked)
		require.Empty(t, writer)

		same, err := reading.Downgrade(t.Context())
		require.NoError(t, err)
		require.Same(t, reading, same, "a read lease is returned as it is")
		unlock(t, reading)
		next := <-writer
		require.Greater(t, next.Token(), reading.Token(), "it had waited before there was a reader's node")
		require.GreaterOrEqual(t, reading.Token(), writing.Token())
		unlock(t, next)
		require.NoError(t, wait.Wait())
		_, err = reading.Downgrade(t.Context())
		require.ErrorIs(t, err, protocol.ErrReleased)
		_, err = writing.Downgrade(t.Context())
		require.ErrorIs(t, err, protocol.ErrReleased)
	})
}

func TestDowngradeLeavesNoGapForAWriter(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c := newContest(t, srv, srv.Root(t)+"/gap")
		link := srv.Link(t)
		asleep := link.Answered(recipestest.OpGetData, 2)
		var wait group
		writer := enter(t, &wait, write, rwlock.New(link.Client(t), c.path), c.watcher, 2)
		<-asleep
		c.link.Delay(20 * time.Millisecond) // leaves time for the other contender between any two steps of the holder
		reading, err := c.writing.Downgrade(t.Context())
		require.NoError(t, err)

		// The writer has seen that the node is gone, and has found another one in its place.
		select {
		case <-link.Answered(recipestest.OpGetData, 3):
		case l := <-writer:
			require.NoError(t, l.Unlock(t.Context()))
			require.Fail(t, "a writer got in between")
		}

		require.Equal(t, 1, link.Events())
		require.Empty(t, writer)
		unlock(t, reading)
		unlock(t, <-writer)
		require.NoError(t, wait.Wait())
	})
}

// The holder watches its node. A downgrade deletes that node, which must not be taken for a loss.
func TestDowngradeIsNotMistakenForALoss(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		for lost := range 3 {
			c := newContest(t, srv, fmt.Sprintf("%s/%d", srv.Root(t), lost))
			<-c.link.Answered(recipestest.OpGetData, 1) // the watch
			c.link.LoseReply(recipestest.OpMulti, min(lost, 1))
			c.link.LoseReply(recipestest.OpSync, lost/2)
			reading, err := c.writing.Downgrade(t.Context())
			require.NoError(t, err)
			require.ErrorIs(t, c.writing.Err(), protocol.ErrReleased)
			require.NotErrorIs(t, c.writing.Err(), protocol.ErrLost)
			c.settle(t, reading, err)
		}
	})
}

func TestDowngradedLeaseIsLostWhenItsNodeIsDeleted(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		m := rwlock.New(srv.Client(t), srv.Root(t)+"/told")
		reading, err := must(t, write, m).Downgrade(t.Context())
		require.NoError(t, err)
		require.NoError(t, m.Break(t.Context(), reading.Node()))
		<-reading.Done()
		require.ErrorIs(t, reading.Err(), protocol.ErrLost)
	})
}

func TestDowngradeInDoLeavesTheReadLeaseToFn(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		m := rwlock.New(srv.Client(t), srv.Root(t)+"/do")
		var reading *rwlock.Lease
		require.NoError(t, m.Do(t.Context(), func(ctx context.Context, l *rwlock.Lease) (err error) {
			reading, err = l.Downgrade(ctx)
			if ctx.Err() == nil {
				return errors.New("the writer's ctx goes on")
			}
			return err
		}))
		require.NoError(t, reading.Err())
		unlock(t, reading)
		awaitContenders(t, m, 0)
	})
}

func TestDowngradeOfABrokenLeaseIsALoss(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, root := srv.Client(t), srv.Root(t)
		operator := suite.Session(t, srv.Client(t)).Conn()
		for name, breakIt := range map[string]func(path, node string) error{
			"node": func(path, node string) error { return operator.Delete(path+"/"+node, -1) },
			"line": func(path, node string) error {
				err := operator.Delete(path+"/"+node, -1)
				if line := operator.Delete(path, -1); !errors.Is(line, zk.ErrNoNode) { // the server removes empty containers
					err = errors.Join(err, line)
				}
				return err
			},
		} {
			path := root + "/" + name
			m := rwlock.New(c, path)
			writing := must(t, write, m)
			require.NoError(t, breakIt(path, writing.Node()))
			_, err := writing.Downgrade(t.Context())
			require.ErrorIs(t, err, protocol.ErrLost, name)
			require.ErrorContains(t, err, "rwlock: "+path+": ")
			require.ErrorIs(t, writing.Err(), protocol.ErrLost, name)
			require.Empty(t, awaitContenders(t, m, 0))
		}
	})
}

func TestDowngradeThatIsRefusedChangesNothing(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/refused"
		m := rwlock.New(c, path)
		writing := must(t, write, m)
		done, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := writing.Downgrade(done)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, writing.Err(), "ctx had ended before")

		conn := suite.Session(t, c).Conn()
		_, err = conn.SetACL(path, zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
		require.NoError(t, err)
		_, err = writing.Downgrade(t.Context())
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.NoError(t, writing.Err())
		require.Equal(t, writing.Node(), awaitContenders(t, m, 1)[0].Node)

		_, err = conn.SetACL(path, zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		reading, err := writing.Downgrade(t.Context())
		require.NoError(t, err)
		unlock(t, reading)
		awaitContenders(t, m, 0)
	})
}

// A contest is a downgrade that meets another event.
type contest struct {
	path    string
	link    *recipestest.Link
	writing *rwlock.Lease
	watcher *rwlock.RWMutex
}

func newContest(t *testing.T, srv *recipestest.Server, path string, opts ...protocol.ConnectOption) contest {
	link := srv.Link(t)
	return contest{path, link, must(t, write, rwlock.New(link.Client(t, opts...), path)), rwlock.New(srv.Client(t), path)}
}

// settle checks that at most one of the two leases is held, that the node belongs to it, and that
// no other node stays.
func (c contest) settle(t *testing.T, reading *rwlock.Lease, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c.link.Heal()
	if err != nil {
		require.Nil(t, reading)
	}

	for _, l := range []*rwlock.Lease{reading, c.writing} {
		if l != nil && l.Err() == nil {
			if l == c.writing {
				require.Nil(t, reading, "two leases")
			}
			line, err := c.watcher.Contenders(ctx)
			require.NoError(t, err)
			require.Len(t, line, 1)
			require.Equal(t, l.Node(), line[0].Node)
			require.Equal(t, l.Exclusive(), line[0].Exclusive)
			require.NoError(t, l.Unlock(ctx))
		}
	}

	require.Error(t, c.writing.Err())

	// No orphan bars the way while the session lives.
	next, err := c.watcher.Lock(ctx)
	require.NoError(t, err)
	require.Greater(t, next.Token(), c.writing.Token())
	require.NoError(t, next.Unlock(ctx))
}

// breakAll breaks every contender in line. It takes several attempts if the transaction comes in
// between.
func (c contest) breakAll(ctx context.Context) error {
	for {
		line, err := c.watcher.Contenders(ctx)
		if err != nil || len(line) == 0 {
			return err
		}
		for _, contender := range line {
			if err := c.watcher.Break(ctx, contender.Node); err != nil && !errors.Is(err, zk.ErrNoNode) {
				return err
			}
		}
	}
}

// Whenever ctx ends, one lease is held in the end or none, and no node is left.
func TestContextThatEndsDuringDowngrade(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		suite.Sweep(t, func(step int) bool {
			c := newContest(t, srv, fmt.Sprintf("%s/%d", root, step))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			multis := c.link.Count(recipestest.OpMulti)
			over := suite.At(c.link, step, cancel)
			reading, err := c.writing.Downgrade(ctx)
			met := over()
			if step == 1 {
				require.Error(t, err, "ctx had ended before there was an answer")
			}

			if err != nil && c.writing.Err() == nil {
				// The packet belonged to the holder, and came before Downgrade had begun: nothing
				// has changed.
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, multis, c.link.Count(recipestest.OpMulti))
			} else if err != nil {
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, c.writing.Err(), protocol.ErrReleased, "given back")
				require.NotErrorIs(t, c.writing.Err(), protocol.ErrLost)
				require.NoError(t, c.writing.Unlock(t.Context()))
				awaitContenders(t, c.watcher, 0)
			}

			c.settle(t, reading, err)
			return met
		})
	})
}

// ctx ends while the network is silent. The transaction may or may not have been executed, and no
// client can know.
func TestContextThatEndsWhileDowngradeIsUnanswered(t *testing.T) {
	for name, stall := range map[string]func(*recipestest.Link){
		"request lost": (*recipestest.Link).StallRequests,
		"reply lost":   (*recipestest.Link).StallReplies,
		"cut":          (*recipestest.Link).Cut,
	} {
		for _, outage := range []time.Duration{3 * time.Second, 30 * time.Second} {
			t.Run(fmt.Sprintf("%s for %v", name, outage), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					srv := recipestest.Start(t, recipestest.WithInMemory())
					c := newContest(t, srv, srv.Root(t)+"/stalled")
					stall(c.link)
					time.AfterFunc(outage, c.link.Heal)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					began := time.Now()
					reading, err := c.writing.Downgrade(ctx)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Equal(t, time.Second, time.Since(began))
					require.ErrorIs(t, c.writing.Err(), protocol.ErrReleased)
					time.Sleep(outage)
					awaitContenders(t, c.watcher, 0)
					c.settle(t, reading, err)
				})
			})
		}
	}
}

func TestUnlockDuringDowngradeGivesEverythingBack(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		suite.Sweep(t, func(step int) bool {
			c := newContest(t, srv, fmt.Sprintf("%s/%d", root, step))
			var wait group
			over := suite.At(c.link, step, func() {
				unlocking := make(chan struct{})
				wait.Go(func() error {
					close(unlocking)
					return c.writing.Unlock(t.Context())
				})
				<-unlocking
			})

			reading, err := c.writing.Downgrade(t.Context())
			met := over()
			require.NoError(t, wait.Wait())
			if err != nil {
				require.ErrorIs(t, err, protocol.ErrReleased)
				awaitContenders(t, c.watcher, 0)
			}

			c.settle(t, reading, err)
			return met
		})
	})
}

func TestOperatorBreaksTheLockDuringDowngrade(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		suite.Sweep(t, func(step int) bool {
			c := newContest(t, srv, fmt.Sprintf("%s/%d", root, step))
			var wait group
			over := suite.At(c.link, step, func() {
				err := c.breakAll(t.Context())
				wait.Go(func() error { return err })
			})

			reading, err := c.writing.Downgrade(t.Context())
			met := over()
			if met {
				broken := reading
				if err != nil {
					require.ErrorIs(t, err, protocol.ErrLost)
					broken = c.writing
				}
				<-broken.Done()
				require.ErrorIs(t, broken.Err(), protocol.ErrLost)
			}

			require.NoError(t, wait.Wait())
			c.settle(t, reading, err)
			return met
		})
	})
}

func TestCloseDuringDowngrade(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		suite.Sweep(t, func(step int) bool {
			link := srv.Link(t)
			client := link.Client(t)
			path := fmt.Sprintf("%s/%d", root, step)
			writing := must(t, write, rwlock.New(client, path))
			var wait group
			over := suite.At(link, step, func() { wait.Go(func() error { return suite.TryClose(client) }) })
			reading, err := writing.Downgrade(t.Context())
			met := over()
			if err != nil {
				require.ErrorIs(t, err, protocol.ErrClosed)
				require.ErrorIs(t, err, protocol.ErrLost)
			}

			require.NoError(t, wait.Wait())
			if !met {
				suite.Close(t, client)
			}

			if reading != nil {
				require.ErrorIs(t, reading.Err(), protocol.ErrClosed)
			}

			require.Error(t, writing.Err())
			awaitContenders(t, rwlock.New(srv.Client(t), path), 0)
			return met
		})
	})
}

func TestOfTwoDowngradesOneSucceeds(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c := newContest(t, srv, srv.Root(t)+"/two")
		type outcome struct {
			reading *rwlock.Lease
			err     error
		}

		outcomes := make(chan outcome)

		for range 2 {
			go func() {
				l, err := c.writing.Downgrade(t.Context())
				outcomes <- outcome{l, err}
			}()
		}

		a, b := <-outcomes, <-outcomes
		if a.err != nil {
			a, b = b, a
		}

		require.NoError(t, a.err)
		require.ErrorIs(t, b.err, protocol.ErrReleased)
		c.settle(t, a.reading, a.err)
	})
}

// A client whose back-off ends gives up with the outcome unknown.
func TestDowngradeThatIsGivenUpGivesTheLockBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		once := func() backoff.BackOff { return &backoff.StopBackOff{} }
		c := newContest(t, srv, srv.Root(t)+"/given-up", protocol.WithBackOff(once))
		c.link.LoseReply(recipestest.OpMulti, 1)
		c.link.LoseReply(recipestest.OpSync, 1)
		reading, err := c.writing.Downgrade(t.Context())
		require.ErrorContains(t, err, "given up")
		require.ErrorIs(t, c.writing.Err(), protocol.ErrReleased)
		awaitContenders(t, c.watcher, 0)
		c.settle(t, reading, err)
	})
}

// The answer is lost, and a server that may lag is not believed without a Sync.
func TestDowngradeWhoseOutcomeCannotBeFoundOutGivesTheLockBack(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		path, watcher := srv.Root(t)+"/unknown", rwlock.New(srv.Client(t), srv.Root(t)+"/unknown")
		writing := must(t, write, rwlock.New(link.Client(t), path))
		time.Sleep(time.Second) // until its node is watched
		link.LoseReply(recipestest.OpMulti, 1)
		link.Fail(recipestest.OpSync, "", -102, 1)
		_, err := writing.Downgrade(t.Context())
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorIs(t, err, protocol.ErrUncertain)
		require.ErrorIs(t, writing.Err(), protocol.ErrReleased)
		awaitContenders(t, watcher, 0)
	})
}

// A client that lists the line meanwhile sees the holder, in its old place or in the new one.
func TestContendersShowTheHolderThroughADowngrade(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		suite.Sweep(t, func(step int) bool {
			path := fmt.Sprintf("%s/%d", root, step)
			writing := must(t, write, rwlock.New(srv.Client(t), path))
			link := srv.Link(t)
			watcher := rwlock.New(link.Client(t), path)
			_, err := watcher.Contenders(t.Context()) // its session is there
			require.NoError(t, err)
			var reading *rwlock.Lease
			over := suite.At(link, step, func() { reading, err = writing.Downgrade(t.Context()) })
			line, failed := watcher.Contenders(t.Context())
			met := over()
			require.NoError(t, failed)
			require.NoError(t, err)
			require.Len(t, line, 1)
			if reading == nil {
				reading = writing
			}

			unlock(t, reading)
			return met
		})
	})
}

// A waiter behind a writer that becomes a reader is let in if it is a reader. A writer goes on
// waiting, wherever it is in line.
func TestDowngradeIsNoReleaseToWaiters(t *testing.T) {
	for _, ahead := range []int{0, 1} { // contenders ahead of the downgrading one when the others come
		for _, kinds := range []string{"WRR", "RWR", "RRW", "W"} {
			t.Run(fmt.Sprint(kinds, ahead), func(t *testing.T) {
				suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
					path := srv.Root(t) + "/waiting"
					m := rwlock.New(srv.Client(t), path)
					held := must(t, write, m)
					var wait group
					n := 1
					var next <-chan *rwlock.Lease
					if ahead == 1 {
						n++
						next = enter(t, &wait, write, rwlock.New(srv.Client(t), path), m, n)
					}

					links := make([]*recipestest.Link, len(kinds))
					clients := make([]*protocol.Client, len(kinds))
					entered := make([]<-chan *rwlock.Lease, len(kinds))
					first := strings.IndexByte(kinds, 'W')

					for i, kind := range kinds {
						n++
						links[i] = srv.Link(t)
						clients[i] = links[i].Client(t)
						v := read
						if kind == 'W' {
							v = write
						}
						entered[i] = enter(t, &wait, v, rwlock.New(clients[i], path), m, n)
						<-links[i].Answered(recipestest.OpGetData, 2)
					}

					if ahead == 1 {
						unlock(t, held)
						held = <-next
					}

					watched := links[first].Answered(recipestest.OpGetData, 3)
					reading, err := held.Downgrade(t.Context())
					require.NoError(t, err)
					readers := []*rwlock.Lease{reading}
					for i := range first {
						readers = append(readers, <-entered[i])
					}

					if first == 0 {
						select {
						case <-watched: // it has looked, and waits for the reader
						case <-entered[first]:
							require.Fail(t, "a reader is ahead")
						}
					}

					suite.CatchUp(t, clients[first])

					for i := first; i < len(kinds); i++ {
						require.Empty(t, entered[i])
						if i > 0 {
							require.Zero(t, links[i].Events(), "it waits for another contender")
						}
					}

					for _, l := range readers {
						require.NoError(t, l.Err())
						unlock(t, l)
					}

					unlock(t, <-entered[first])
					for i := first + 1; i < len(kinds); i++ {
						unlock(t, <-entered[i])
					}

					require.NoError(t, wait.Wait())
				})
			})
		}
	}
}

// A writer lists the line while its predecessor becomes a reader. It finds no node where it had
// seen one, and is not next.
func TestDowngradeAtEachStepOfALock(t *testing.T) {
	suite.Sweep(t, func(step int) (met bool) {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithInMemory())
			c := newContest(t, srv, srv.Root(t)+"/step")
			link := srv.Link(t)
			m := rwlock.New(link.Client(t), c.path)
			var reading *rwlock.Lease
			stop := link.At(step, func() {
				var err error
				reading, err = c.writing.Downgrade(t.Context())
				assert.NoError(t, err)
			})

			writer := make(chan *rwlock.Lease, 1)

			go func() {
				l, err := m.Lock(t.Context())
				assert.NoError(t, err)
				writer <- l
			}()

			synctest.Wait()
			if met = !stop(); met {
				require.Empty(t, writer, "a reader is ahead")
				require.NotNil(t, reading)
				unlock(t, reading)
			} else {
				unlock(t, c.writing)
			}

			l := <-writer
			require.NotNil(t, l)
			unlock(t, l)
		})

		return met
	})
}

// The servers answer that they do not know whether they have carried out the transaction, and then
// refuse to say whether the reader's node is there.
func TestDowngradeOfUnknownOutcomeSaysSo(t *testing.T) {
	const connectionLoss, noAuth = -4, -102
	srv := recipestest.Start(t)
	link := srv.Link(t)
	m := rwlock.New(link.Client(t), srv.Root(t)+"/down")
	writing := must(t, write, m)
	link.Fail(recipestest.OpMulti, "", connectionLoss, 1)
	link.Fail(recipestest.OpExists, "", -102, 1)
	link.Fail(recipestest.OpSync, "", -102, 1)
	_, err := writing.Downgrade(t.Context())
	require.ErrorIs(t, err, protocol.ErrUncertain)
}
