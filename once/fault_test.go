package once_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A fault at any step of waiting, running and recording never yields two runs at a time, two that
// are recorded, a call that is stuck or a leftover node.
func TestFaultAtEachStep(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		for _, f := range suite.QuickFaults {
			t.Run(f.Name, func(t *testing.T) {
				t.Parallel()
				suite.Sweep(t, func(step int) bool {
					return meetFault(t, srv, fmt.Sprintf("%s/%s/%d", root, f.Name, step), f, step)
				})
			})
		}
	})
}

func TestLongFaultAtEachStep(t *testing.T) {
	for _, f := range suite.SlowFaults(10 * time.Second) {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				root := srv.Root(t)
				suite.Sweep(t, func(step int) bool {
					return meetFault(t, srv, fmt.Sprintf("%s/%d", root, step), f, step)
				})
			})
		})
	}
}

// meetFault makes three clients call Do with one key, until none has an error. The first one's run
// fails. The second client meets the fault. meetFault reports whether the fault came about.
func meetFault(t *testing.T, srv *recipestest.Server, path string, f suite.Fault, step int) bool {
	ctx := suite.Within(t, 10*time.Minute)
	link := srv.Link(t)
	first, victim, last := srv.Client(t), link.Client(t), srv.Client(t)
	defer suite.Close(t, first, last)
	session := suite.Session(t, victim).ID()
	book := &ledger{forced: f.Name == "expiry"}

	requireRan(t, do(t, once.New(first, path), "old", nothing)) // which is forgotten on the way
	run := newBlocked()
	failing := later(ctx, once.New(first, path, once.WithKeep(2)), "key", run.fn)
	suite.Wait(t, run.began)

	over := suite.At(link, step, func() { f.Do(srv, link, session) })
	var wait suite.Group
	contend := func(c *protocol.Client, keys ...string) {
		o := once.New(c, path, once.WithKeep(2))
		wait.Go(func() error {
			for _, key := range keys {
				if err := book.do(ctx, o, key); err != nil {
					return err
				}
			}
			return nil
		})
	}
	contend(victim, "other", "key")
	contend(last, "key")
	run.result <- errFailed
	require.ErrorIs(t, suite.Wait(t, failing).err, errFailed)
	require.NoError(t, wait.Wait(), "step %d", step)
	met := over()

	link.Heal()
	data, _ := suite.Get(t, last, path+"/done/key")
	require.NoError(t, book.check("key", data), "step %d", step)
	requireDone(t, do(t, once.New(last, path), "key", never))
	calls(t, last, path, 0)
	suite.Close(t, victim)
	return met
}

// A ledger records runs.
type ledger struct {
	// forced says that the server ends a session before its time. Then the next run may begin
	// before the last one learns of its loss.
	forced bool

	mu       sync.Mutex // protects what follows
	running  map[string]context.Context
	recorded map[string][]int64
	lost     map[string][]int64 // those that are certainly not recorded
}

// do calls Do until it has no error. It returns an error if that would never be.
func (b *ledger) do(ctx context.Context, o *once.Once, key string) error {
	for {
		var token int64
		ran, err := o.Do(ctx, key, func(ctx context.Context, its int64) error {
			token = its
			return b.begin(ctx, key)
		})
		b.mu.Lock()
		switch {
		case ran && err == nil:
			b.recorded = with(b.recorded, key, token)
		case ran && !errors.Is(err, protocol.ErrUncertain):
			b.lost = with(b.lost, key, token)
		}
		b.mu.Unlock()
		switch {
		case !errors.Is(err, protocol.ErrLost) && !errors.Is(err, protocol.ErrUncertain):
			return err
		case !ran:
			return fmt.Errorf("without a run: %w", err)
		}
	}
}

func with(all map[string][]int64, key string, token int64) map[string][]int64 {
	if all == nil {
		all = make(map[string][]int64)
	}
	all[key] = append(all[key], token)
	return all
}

// begin notes that a run has begun. The run before, if it goes on, must have lost the right to.
func (b *ledger) begin(ctx context.Context, key string) error {
	b.mu.Lock()
	before := b.running[key]
	if b.running == nil {
		b.running = make(map[string]context.Context)
	}
	b.running[key] = ctx
	b.mu.Unlock()
	switch {
	case before == nil:
		return nil
	case b.forced:
		select {
		case <-before.Done():
		case <-time.After(suite.Limit):
			return errors.New("a run never learns of its loss")
		}
	case before.Err() == nil && ctx.Err() == nil:
		return errors.New("two runs at a time")
	}
	return nil
}

// check compares the runs with what is recorded in the end.
func (b *ledger) check(key string, data []byte) error {
	var record struct{ Token int64 }
	if err := json.Unmarshal(data, &record); err != nil {
		return err
	}
	if len(b.recorded[key]) > 1 || len(b.recorded[key]) == 1 && b.recorded[key][0] != record.Token {
		return fmt.Errorf("%v were told that they are recorded, %d is", b.recorded[key], record.Token)
	}
	for _, token := range b.lost[key] {
		if token == record.Token {
			return fmt.Errorf("%d was told that it is not recorded", token)
		}
	}
	return nil
}

func TestRunIsRecordedThoughRepliesAreLost(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/once", srv.Link(t)
		o := once.New(link.Client(t), path)
		requireRan(t, do(t, o, "first", nothing))
		for n := 1; n <= 3; n++ {
			key := fmt.Sprint("key ", n)
			requireRan(t, do(t, o, key, func(context.Context, int64) error {
				link.LoseReply(recipestest.OpMulti, n)
				return nil
			}))
			requireDone(t, do(t, once.New(srv.Client(t), path), key, never))
		}
	})
}

func TestRunThatLosesItsRightIsNotRecorded(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, srv *recipestest.Server, c *protocol.Client, path string){
		"node deleted": func(t *testing.T, srv *recipestest.Server, c *protocol.Client, path string) {
			node := calls(t, c, path, 1)[0]
			require.NoError(t, suite.Session(t, c).Delete(t.Context(), path+"/"+node, -1))
		},
		"session expired": func(t *testing.T, srv *recipestest.Server, c *protocol.Client, path string) {
			owner, _, _ := protocol.ParseOwner(calls(t, c, path, 1)[0])
			srv.ExpireSession(owner.Session)
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
				path, c, run := srv.Root(t)+"/once", srv.Client(t), newBlocked()
				first := later(t.Context(), once.New(srv.Client(t), path), "key", run.fn)
				held := suite.Wait(t, run.began)
				lose(t, srv, c, path)
				suite.Wait(t, held.Done())
				require.ErrorIs(t, context.Cause(held), protocol.ErrLost)

				run.result <- nil
				lost := suite.Wait(t, first)
				require.True(t, lost.ran)
				require.ErrorIs(t, lost.err, protocol.ErrLost)
				require.NotErrorIs(t, lost.err, protocol.ErrUncertain)
				require.ErrorContains(t, lost.err, `once: `+path+`: key "key" has run, and that is not recorded: `)
				requireRan(t, do(t, once.New(c, path), "key", nothing))
			})
		})
	}
}

// The holder has not noticed yet that its node is gone, which the servers check.
func TestTransactionChecksTheRight(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c, link := srv.Root(t)+"/once", srv.Client(t), srv.Link(t)
		requireRan(t, do(t, once.New(c, path), "first", nothing))
		paused := newBlocked()
		first := later(t.Context(), once.New(link.Client(t), path), "key", paused.fn)
		suite.Wait(t, paused.began)
		link.StallReplies()
		node := calls(t, c, path, 1)[0]
		require.NoError(t, suite.Session(t, c).Delete(t.Context(), path+"/"+node, -1))
		second := newBlocked()
		next := later(t.Context(), once.New(c, path), "key", second.fn)
		suite.Wait(t, second.began)
		paused.result <- nil
		synctest.Wait()
		link.Heal()

		lost := suite.Wait(t, first)
		require.True(t, lost.ran)
		require.ErrorIs(t, lost.err, protocol.ErrLost)
		require.NotErrorIs(t, lost.err, protocol.ErrUncertain)
		second.result <- nil
		requireRan(t, suite.Wait(t, next))
	})
}

// The session ends with the answer. Whether the run is recorded, the next call finds out.
func TestOutcomeThatIsLostWithTheSessionIsReported(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/once", srv.Link(t)
		c := link.Client(t)
		o := once.New(c, path)
		requireRan(t, do(t, o, "first", nothing))
		uncertain := do(t, o, "key", func(context.Context, int64) error {
			link.StallReplies()
			time.AfterFunc(time.Minute, link.Heal)
			return nil
		})
		require.True(t, uncertain.ran)
		require.ErrorIs(t, uncertain.err, protocol.ErrUncertain)
		require.ErrorIs(t, uncertain.err, protocol.ErrLost)
		link.Heal()
		requireDone(t, do(t, o, "key", never))

		uncertain = do(t, o, "another", func(context.Context, int64) error {
			link.StallRequests()
			time.AfterFunc(time.Minute, link.Heal)
			return nil
		})
		require.True(t, uncertain.ran)
		require.ErrorIs(t, uncertain.err, protocol.ErrLost)
		link.Heal()
		requireRan(t, do(t, o, "another", nothing))
	})
}

func TestClosedClientReportsTheRun(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/once", srv.Client(t)
		closed := do(t, once.New(c, path), "key", func(context.Context, int64) error { return c.Close() })
		require.True(t, closed.ran)
		require.ErrorIs(t, closed.err, protocol.ErrClosed)
		require.ErrorIs(t, closed.err, protocol.ErrLost)
		requireRan(t, do(t, once.New(srv.Client(t), path), "key", nothing))
	})
}

// Missing nodes are created again, also if they go while a call runs.
func TestNodesAboveTheRecordMayVanish(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/once", srv.Client(t)
		for i := range 3 {
			key := fmt.Sprint(i)
			requireRan(t, do(t, once.New(c, path), key, func(context.Context, int64) error {
				s := suite.Session(t, c)
				for _, dir := range []string{"/done", "/order"} {
					for _, child := range suite.Children(t, c, path+dir) {
						require.NoError(t, s.Delete(t.Context(), path+dir+"/"+child, -1))
					}
					if err := s.Delete(t.Context(), path+dir, -1); !errors.Is(err, zk.ErrNoNode) {
						require.NoError(t, err)
					}
				}
				return nil
			}))
			requireDone(t, do(t, once.New(c, path), key, never))
		}
	})
}

// A run that cannot be recorded is reported, and the next call runs.
func TestRefusalToRecordIsReported(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/once", srv.Client(t)
		s := suite.Session(t, c)
		for _, dir := range []string{path, path + "/order", path + "/done"} {
			_, err := s.EnsurePath(t.Context(), dir)
			require.NoError(t, err)
		}
		_, err := s.Conn().SetACL(path+"/done", zk.WorldACL(zk.PermRead|zk.PermAdmin), -1)
		require.NoError(t, err)
		refused := do(t, once.New(c, path), "key", nothing)
		require.True(t, refused.ran)
		require.ErrorIs(t, refused.err, zk.ErrNoAuth)
		require.NotErrorIs(t, refused.err, protocol.ErrUncertain)
		calls(t, c, path, 0)

		_, err = s.Conn().SetACL(path+"/done", zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		requireRan(t, do(t, once.New(c, path), "key", nothing))
	})
}

// The session is lost after the record, before the lock is given back.
func TestRunThatIsRecordedSucceedsThoughItsSessionIsLost(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/once", srv.Link(t)
		c := link.Client(t)
		o := once.New(c, path)
		requireRan(t, do(t, o, "first", nothing))
		id := suite.Session(t, c).ID()
		requireRan(t, do(t, o, "key", func(context.Context, int64) error {
			recorded := link.Answered(recipestest.OpMulti, link.Count(recipestest.OpMulti)+1)
			go func() {
				<-recorded
				link.Stall()
				suite.Expire(srv, id)
				link.Heal()
			}()
			return nil
		}))
		requireDone(t, do(t, o, "key", never))
	})
}

// After a lost reply the client goes on at a server that does not know the record yet.
func TestLostReplyIsLookedForBehindASync(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, f := srv.Root(t)+"/once", srv.Link(t), srv.Embedded().Follower()
		o := once.New(link.Client(t), path)
		requireRan(t, do(t, o, "first", nothing))
		requireRan(t, do(t, o, "key", func(context.Context, int64) error {
			f.Lag(time.Second)
			link.Move(f)
			link.LoseReply(recipestest.OpMulti, 1)
			return nil
		}))
		f.Lag(0)
		requireDone(t, do(t, o, "key", never))
	})
}

// The key was made done by hand while the run went on, and the reply that says so is lost.
func TestRecordOfAnotherIsNotOnesOwn(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/once", srv.Link(t)
		o := once.New(link.Client(t), path)
		requireRan(t, do(t, o, "first", nothing))
		other := suite.Session(t, srv.Client(t))
		foreign := do(t, o, "key", func(context.Context, int64) error {
			link.LoseReply(recipestest.OpMulti, 1)
			return other.Create(t.Context(), path+"/done/key", nil, zk.FlagPersistent)
		})
		require.True(t, foreign.ran)
		require.ErrorIs(t, foreign.err, zk.ErrNodeExists)
		requireDone(t, do(t, o, "key", never))
	})
}

func TestPathsBelowAChroot(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		root, plain, link := srv.Root(t), srv.Client(t), srv.Link(t)
		c, err := protocol.Connect(t.Context(), srv.ConnectString()+root+"/app", protocol.WithDialer(link.Dial))
		require.NoError(t, err)
		defer suite.Close(t, c)
		o := once.New(c, "/once", once.WithKeep(1))
		for _, key := range []string{"a", "b", "c"} {
			requireRan(t, do(t, o, key, func(context.Context, int64) error {
				if key == "b" {
					link.LoseReply(recipestest.OpMulti, 1)
				}
				return nil
			}))
		}
		require.Equal(t, []string{"c"}, remembered(t, plain, root+"/app/once"))
	})
}
