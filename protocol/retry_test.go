package protocol_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// steady is a back-off of ten milliseconds that ends after n of them.
func steady(n uint64) protocol.Option {
	return protocol.WithBackOff(func() backoff.BackOff {
		return backoff.WithMaxRetries(backoff.NewConstantBackOff(10*time.Millisecond), n)
	})
}

func TestDoRepeatsUntilTheServerHasAnswered(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		s := session(t, link.Client(t, steady(99)))
		link.LoseReply(recipestest.OpExists, 3)
		attempts := 0
		found, err := recipe.Do(lasting(t), s, func(conn *zk.Conn) (bool, error) {
			attempts++
			found, _, err := conn.Exists("/zookeeper")
			return found, err
		})
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, 4, attempts)
		require.Equal(t, 4, link.Count(recipestest.OpExists))
	})
}

func TestDoReturnsTheServersWordAtOnce(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		link, root := srv.Link(t), srv.Root(t)
		s := session(t, link.Client(t))
		before := link.Count(recipestest.OpAny)
		_, err := recipe.Do(lasting(t), s, create(s, root+"/no/parent", 0))
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.Equal(t, before+1, link.Count(recipestest.OpAny))
	})
}

func TestDoEndsWithItsContextItsSessionAndItsClient(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		for name, c := range map[string]struct {
			end  func(*recipestest.Link, *protocol.Client, *recipe.Session, context.CancelCauseFunc)
			want []error
		}{
			"context": {func(_ *recipestest.Link, _ *protocol.Client, _ *recipe.Session, cancel context.CancelCauseFunc) {
				cancel(nil)
			}, []error{context.Canceled}},
			"session": {func(link *recipestest.Link, _ *protocol.Client, s *recipe.Session, _ context.CancelCauseFunc) {
				srv.ExpireSession(s.ID())
				link.Heal()
			}, []error{protocol.ErrLost}},
			"client": {func(_ *recipestest.Link, c *protocol.Client, _ *recipe.Session, _ context.CancelCauseFunc) {
				c.Close()
			}, []error{protocol.ErrClosed}},
		} {
			for _, fault := range []func(*recipestest.Link){(*recipestest.Link).Cut, (*recipestest.Link).Stall} {
				link := srv.Link(t)
				client := link.Client(t)
				s := session(t, client)
				fault(link)
				ctx, cancel := context.WithCancelCause(t.Context())
				result := later(func() error {
					_, err := recipe.Do(ctx, s, func(conn *zk.Conn) (string, error) { return conn.Sync("/") })
					return err
				})
				time.Sleep(time.Second)
				synctest.Wait()
				require.Empty(t, result, name)
				c.end(link, client, s, cancel)
				err := wait(t, result)
				for _, want := range c.want {
					require.ErrorIs(t, err, want, name)
				}
				cancel(nil)
				link.Heal()
			}
		}
	})
}

func TestBackOffThatStopsEndsDoWithTheLastError(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		s := session(t, link.Client(t, steady(2)))
		link.LoseReply(recipestest.OpExists, 99)
		_, err := recipe.Do(lasting(t), s, func(conn *zk.Conn) (bool, error) {
			found, _, err := conn.Exists("/")
			return found, err
		})
		require.ErrorIs(t, err, zk.ErrConnectionClosed)
		require.ErrorContains(t, err, "given up")
		require.Equal(t, 3, link.Count(recipestest.OpExists))
	})
}

func TestSettleAsksOnlyWhereTheOutcomeIsUnknown(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		link, root := srv.Link(t), srv.Root(t)
		s := session(t, link.Client(t, steady(99)))
		asked, answer := 0, func() (string, bool, error) { return "", false, nil }
		settle := func(context.Context) (string, bool, error) {
			asked++
			return answer()
		}
		made, err := recipe.DoOnce(lasting(t), s, create(s, root, 0), settle)
		require.NoError(t, err)
		require.Equal(t, s.Path(root), made)
		_, err = recipe.DoOnce(lasting(t), s, create(s, root, 0), settle)
		require.ErrorIs(t, err, zk.ErrNodeExists)
		require.Zero(t, asked)

		link.LoseReply(recipestest.OpCreate, 1)
		answer = func() (string, bool, error) { return "found", true, nil }
		made, err = recipe.DoOnce(lasting(t), s, create(s, root+"/a", 0), settle)
		require.NoError(t, err)
		require.Equal(t, "found", made)
		require.Equal(t, 1, asked)

		link.LoseReply(recipestest.OpCreate, 2)
		answer = func() (string, bool, error) { return "", false, nil }
		made, err = recipe.DoOnce(lasting(t), s, create(s, root+"/s-", zk.FlagSequence), settle)
		require.NoError(t, err)
		require.NotEmpty(t, made)
		require.Equal(t, 3, asked)

		reason := errors.New("the reason")
		link.LoseReply(recipestest.OpCreate, 1)
		answer = func() (string, bool, error) { return "", false, reason }
		_, err = recipe.DoOnce(lasting(t), s, create(s, root+"/b", 0), settle)
		require.Equal(t, reason, err)
	})
}

// TestOneNodeHoweverManyRepliesAreLost meets each packet of an acquisition with each fault.
func TestOneNodeWhateverPacketIsLost(t *testing.T) {
	faults := map[string]func(*recipestest.Link){
		"cut":     func(l *recipestest.Link) { l.Cut(); time.AfterFunc(time.Second, l.Heal) },
		"blip":    func(l *recipestest.Link) { l.Cut(); l.Heal() },
		"stall":   func(l *recipestest.Link) { l.Stall(); time.AfterFunc(time.Second, l.Heal) },
		"mute":    func(l *recipestest.Link) { l.StallReplies(); time.AfterFunc(time.Second, l.Heal) },
		"twice":   func(l *recipestest.Link) { l.LoseReply(recipestest.OpAny, 2) },
		"creates": func(l *recipestest.Link) { l.LoseReply(recipestest.OpCreate, 3) },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				link, root := srv.Link(t), srv.Root(t)
				c, other := link.Client(t), session(t, srv.Client(t))
				s := session(t, c)
				for step := 1; ; step++ {
					path := fmt.Sprintf("%s/%d", root, step)
					stop := link.At(step, func() { fault(link) })
					g := hold(t, c, path)
					children, _, err := other.Conn().Children(other.Path(path))
					require.NoError(t, err)
					require.Equal(t, []string{g.Node()}, children)
					require.NoError(t, g.Release(lasting(t)))
					children, _, err = other.Conn().Children(other.Path(path))
					require.NoError(t, err)
					require.Empty(t, children)
					if stop() {
						break
					}
					time.Sleep(s.Timeout())
					link.LoseReply(recipestest.OpAny, 0)
					link.LoseReply(recipestest.OpCreate, 0)
				}
				require.Same(t, s, session(t, c))
			})
		})
	}
}

// TestWhatBecameOfACreateIsLookedForBehindAFence, or a member that lags, or has not passed the create
// on yet, would hide the node.
func TestWhatBecameOfACreateIsLookedForBehindAFence(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root := srv.Link(t), srv.Root(t)
		c := link.Client(t)
		_, err := session(t, c).EnsurePath(lasting(t), root)
		require.NoError(t, err)
		fences, lists := link.Count(recipestest.OpDelete), link.Count(recipestest.OpGetChildren)
		link.LoseReply(recipestest.OpCreate, 1)
		listed := link.Answered(recipestest.OpGetChildren, lists+1)
		held := later(func() *recipe.Grant {
			g, err := lineAt(c, root).Enter(context.Background(), request)
			if err != nil {
				t.Error(err)
			}
			return g
		})
		wait(t, listed)
		require.Equal(t, fences+1, link.Count(recipestest.OpDelete))
		require.NoError(t, wait(t, held).Release(lasting(t)))
	})
}

// TestSecondNodeOfOursIsDeleted makes what a server that hides the first one would: another node of
// the same owner.
func TestSecondNodeOfOursIsDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link, other := srv.Root(t), srv.Link(t), srv.Client(t)
		c := link.Client(t)
		holder := hold(t, other, root)
		link.LoseReply(recipestest.OpCreate, 1)
		next := later(func() *recipe.Grant {
			g, err := lineAt(c, root).Enter(context.Background(), request)
			if err != nil {
				t.Error(err)
			}
			return g
		})
		synctest.Wait()
		s := session(t, c)
		standing, err := lineAt(c, root).Contenders(lasting(t))
		require.NoError(t, err)
		require.Len(t, standing, 2)
		ours, ok := line.ParseName(standing[1].Node, "lock-")
		require.True(t, ok)
		_, err = create(s, root+"/"+ours.Owner.String()+"-"+ours.Kind, zk.FlagEphemeralSequential)(s.Conn())
		require.NoError(t, err)
		require.NoError(t, holder.Release(lasting(t)))
		g := wait(t, next)
		require.Equal(t, ours.Node, g.Node())
		synctest.Wait()
		children, _, err := s.Conn().Children(s.Path(root))
		require.NoError(t, err)
		require.Equal(t, []string{g.Node()}, children)
		require.NoError(t, g.Release(lasting(t)))
	})
}

// census is what is left of waits: watches on the server, goroutines here.
type census struct {
	watches    string
	goroutines int
}

func takeCensus(t *testing.T, srv *recipestest.Server) census {
	t.Helper()
	synctest.Wait()
	return census{watchesOnServer(t, srv), len(ourGoroutines())}
}

// It is not parallel with other tests: it looks at the heap.
func TestWaitsThatAreGivenUpLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		root := srv.Root(t)
		holder := hold(t, srv.Client(t), root)
		link := srv.Link(t)
		c := link.Client(t)
		s := session(t, c)
		giveUp := func(n int) {
			var waits sync.WaitGroup
			for range n {
				waits.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if _, err := lineAt(c, root).Enter(ctx, request); !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				})
			}
			waits.Wait()
			requireSoon(t, func() bool {
				children, _, err := s.Conn().Children(s.Path(root))
				return err == nil && len(children) == 1
			}, "all are out of line")
		}
		// ZKRECIPES_TEST_WAITS=1000 makes it a hundred thousand waits, which take minutes.
		const most = 100
		rounds, err := strconv.Atoi(cmp.Or(os.Getenv("ZKRECIPES_TEST_WAITS"), "20"))
		require.NoError(t, err)
		giveUp(most)
		before, heap := takeCensus(t, srv), heapInUse()
		for range rounds {
			giveUp(most)
		}
		require.Equal(t, before, takeCensus(t, srv))
		require.Less(t, heapInUse(), heap+heap/2+4<<20, "bytes")
		packets := link.Count(recipestest.OpSetWatches)
		srv.Embedded().DropConnections()
		requireSoon(t, func() bool { return s.Conn().State() == zk.StateHasSession }, "back")
		giveUp(1)
		require.Equal(t, packets+1, link.Count(recipestest.OpSetWatches), "packets to set the watches again")
		require.Equal(t, before, takeCensus(t, srv))
		require.NoError(t, holder.Release(lasting(t)))
	})
}

func heapInUse() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapInuse
}

// TestThoseWhoWaitForOneNodeShareOneWatch has claimants wait for the same node.
func TestThoseWhoWaitForOneNodeShareOneWatch(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root := srv.Link(t), srv.Root(t)
		holder := hold(t, srv.Client(t), root)
		c := link.Client(t)
		before := link.Count(recipestest.OpGetData)
		var waits sync.WaitGroup
		granted := make(chan *lock.Lease, 1000)
		for i := range 1000 {
			waits.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				if i == 0 {
					ctx, cancel = context.WithCancel(t.Context())
				}
				defer cancel()
				if g, err := lock.NewSimple(c, root).Lock(ctx); err == nil {
					granted <- g
				} else if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Minute)
		require.Equal(t, before+1, link.Count(recipestest.OpGetData))
		require.NoError(t, holder.Release(lasting(t)))
		require.NoError(t, wait(t, granted).Unlock(lasting(t)))
		waits.Wait()
	})
}

func TestWatchesFireAfterAnyNumberOfCuts(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		link, root, seen := srv.Link(t), srv.Root(t), make(states, 99)
		c := link.Client(t, seen.option())
		holder := hold(t, srv.Client(t), root)
		next := later(func() error {
			g, err := lineAt(c, root).Enter(context.Background(), request)
			if err != nil {
				return err
			}
			return g.Release(context.Background())
		})
		wait(t, link.Answered(recipestest.OpGetData, 2)) // its own node, and its predecessor
		seen.require(t, protocol.Connected)
		for range 10 {
			link.Cut()
			seen.require(t, protocol.Suspended)
			link.Heal()
			seen.require(t, protocol.Connected)
		}
		link.Cut()
		require.NoError(t, holder.Release(lasting(t)))
		link.Heal()
		require.NoError(t, wait(t, next))
	})
}

// observer records what it is told.
type observer chan protocol.Event

func (o observer) Observe(e protocol.Event) { o <- e }

// require compares the next events but for what differs from run to run.
func (o observer) require(t *testing.T, want ...protocol.Event) {
	t.Helper()
	for _, w := range want {
		e := wait(t, o)
		if w.Err != nil {
			require.ErrorIs(t, e.Err, w.Err)
		} else {
			require.NoError(t, e.Err)
		}
		require.GreaterOrEqual(t, e.Duration, w.Duration)
		require.NotNil(t, e.Context)
		require.LessOrEqual(t, e.Time, time.Now())
		require.NotZero(t, e.Time)
		e.Err, e.Duration, w.Err, w.Duration = nil, 0, nil, 0
		e.Time, e.Context = time.Time{}, nil
		require.Equal(t, w, e)
	}
}

func TestObserverIsToldWhatHappensInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root, told := srv.Link(t), srv.Root(t), make(observer, 99)
		c := link.Client(t, protocol.WithObserver(told))
		id := session(t, c).ID()
		event := func(k protocol.EventKind, g *recipe.Grant, d time.Duration, err error) protocol.Event {
			e := protocol.Event{Kind: k, Recipe: "test", Path: root, Duration: d, Err: err}
			if g != nil {
				e.Session, e.Token = id, g.Token()
			}
			return e
		}
		one := hold(t, c, root)
		waiting := event(protocol.EventWaiting, nil, 0, nil)
		told.require(t, waiting, event(protocol.EventAcquired, one, 0, nil))
		_, err := lineAt(c, root).Enter(within(t, 2*time.Second), request)
		require.Error(t, err)
		told.require(t, waiting, event(protocol.EventAcquired, nil, 2*time.Second, context.DeadlineExceeded))
		require.NoError(t, one.Release(lasting(t)))
		told.require(t, event(protocol.EventReleased, one, 2*time.Second, nil))

		two := hold(t, c, root)
		told.require(t, waiting, event(protocol.EventAcquired, two, 0, nil))
		time.Sleep(3 * time.Second)
		require.NoError(t, lineAt(c, root).Break(lasting(t), two.Node()))
		told.require(t, event(protocol.EventLost, two, 3*time.Second, protocol.ErrLost))

		three := hold(t, c, root)
		told.require(t, waiting, event(protocol.EventAcquired, three, 0, nil))
		link.LoseReply(recipestest.OpDelete, 1)
		require.NoError(t, three.Release(lasting(t)))
		told.require(t, event(protocol.EventReleased, three, 0, nil))
		told.require(t, protocol.Event{
			Kind: protocol.EventRetried, Recipe: "test", Path: root, Session: id, Err: zk.ErrConnectionClosed,
		})

		four := hold(t, c, root)
		told.require(t, waiting, event(protocol.EventAcquired, four, 0, nil))
		require.NoError(t, c.Close())
		told.require(t, event(protocol.EventLost, four, 0, protocol.ErrLost))
		synctest.Wait()
		require.Empty(t, told)
	})
}

// Connect sends a credential and asks for the chroot, in the name of no recipe.
func TestObserverIsToldOfRetriesOfTheClientItself(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root, told := srv.Link(t), srv.Root(t), make(observer, 99)
		_, err := session(t, srv.Client(t)).EnsurePath(lasting(t), root)
		require.NoError(t, err)
		link.LoseReply(recipestest.OpAuth, 1)
		link.LoseReply(recipestest.OpSync, 1)
		c, err := protocol.Connect(lasting(t), srv.ConnectString()+root,
			alice, protocol.WithDialer(link.Dial), protocol.WithExistingChroot(), protocol.WithObserver(told))
		require.NoError(t, err)
		defer c.Close()
		retried := protocol.Event{Kind: protocol.EventRetried, Session: session(t, c).ID(), Err: zk.ErrConnectionClosed}
		told.require(t, retried, retried)
	})
}

func TestLogObserverWritesWhatHappens(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		var log bytes.Buffer
		c := srv.Client(t, protocol.WithObserver(protocol.LogObserver(slog.New(slog.NewTextHandler(&log, nil)))))
		root := srv.Root(t)
		require.NoError(t, hold(t, c, root).Release(lasting(t)))
		g := hold(t, c, root)
		require.NoError(t, lineAt(c, root).Break(lasting(t), g.Node()))
		wait(t, g.Done())
		require.NoError(t, c.Close())
		synctest.Wait() // a call that is under way is not waited for
		require.Contains(t, log.String(), "level=INFO msg=acquired recipe=test path="+root)
		require.Contains(t, log.String(), "msg=released")
		require.Contains(t, log.String(), "level=WARN msg=lost")
	})
}

func TestObserverIsToldOfEntries(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, told := srv.Root(t), make(observer, 9)
		base := srv.Client(t)
		c := base.With(protocol.WithObserver(told))
		r := recipe.New(c, "test", root)
		s := session(t, c)
		taken := protocol.Event{Kind: protocol.EventTaken, Session: s.ID(), Count: 3}
		r.Report(taken)
		r.Report(protocol.Event{Kind: protocol.EventCollided, Count: 1, Err: zk.ErrNodeExists})
		r.Part(root + "/inside").Report(taken)
		recipe.New(base, "test", root).Report(taken) // another view's
		recipe.New(nil, "test", root).Report(taken)

		told.require(t,
			protocol.Event{Kind: protocol.EventTaken, Recipe: "test", Path: root, Session: s.ID(), Count: 3},
			protocol.Event{Kind: protocol.EventCollided, Recipe: "test", Path: root, Count: 1, Err: zk.ErrNodeExists})
		synctest.Wait()
		require.Empty(t, told)
	})
}

func TestLogObserverHasALevelForEachKind(t *testing.T) {
	t.Parallel()
	for kind, want := range map[protocol.EventKind]string{
		protocol.EventAcquired:     "level=INFO msg=acquired",
		protocol.EventReleased:     "level=INFO msg=released",
		protocol.EventLost:         "level=WARN msg=lost",
		protocol.EventRetried:      "level=DEBUG msg=retried",
		protocol.EventOffered:      "level=INFO msg=offered",
		protocol.EventTaken:        "level=INFO msg=taken",
		protocol.EventRedelivered:  "level=INFO msg=redelivered",
		protocol.EventCollided:     "level=DEBUG msg=collided",
		protocol.EventDeadLettered: "level=WARN msg=dead-lettered",
		protocol.EventWaiting:      "level=DEBUG msg=waiting",
		protocol.EventConnecting:   "level=WARN msg=connecting",
		protocol.EventAcknowledged: "level=INFO msg=acknowledged",
		protocol.EventReturned:     "level=INFO msg=returned",
		protocol.EventReturned + 1: "level=INFO msg=unknown",
	} {
		var log bytes.Buffer
		o := protocol.LogObserver(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		o.Observe(protocol.Event{Kind: kind, Recipe: "queue", Count: 7})
		require.Contains(t, log.String(), want+" recipe=queue")
		require.Contains(t, log.String(), " count=7")
	}
}

func TestObserverMayCallTheClientAndCloseIt(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, told, done := srv.Root(t), make(observer), make(chan error, 1)
		c := srv.Client(t, protocol.WithObserver(told))
		go func() {
			<-told      // a wait begins
			e := <-told // from within Observe, as far as the dispatcher can tell
			s, err := recipe.SessionOf(context.Background(), c)
			if err == nil {
				_, err = s.EnsurePath(context.Background(), root+"/"+e.Kind.String())
			}
			done <- errors.Join(err, c.Close())
			<-told // dropped
		}()
		hold(t, c, root)
		require.NoError(t, wait(t, done))
	})
}

func TestOversizedDataIsRefusedBeforeItIsSent(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		c, root := srv.Client(t), srv.Root(t)
		s := session(t, c)
		room := recipe.MaxData - len(root) - len(s.Path("/")) + 1
		big := request
		big.Data = make([]byte, room)
		g, err := lineAt(c, root).Enter(lasting(t), big)
		require.NoError(t, err)
		require.NoError(t, g.Release(lasting(t)))

		// Of c there may still be something on its way.
		idle := srv.Link(t)
		c = idle.Client(t)
		before := idle.Packets()
		big.Data = make([]byte, room+1)
		_, err = lineAt(c, root).Enter(lasting(t), big)
		require.ErrorIs(t, err, protocol.ErrTooLarge)
		require.Equal(t, before, idle.Packets())
	})
}

// TestNoSizeOfARequestHarmsTheConnection is about calls that are not a recipe's. (A Multi of one
// exact size is beyond help: zk.Conn panics.)
func TestNoSizeOfARequestHarmsTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root := srv.Link(t), srv.Root(t)
		s := session(t, link.Client(t))
		_, err := create(s, root, 0)(s.Conn())
		require.NoError(t, err)
		connects := link.Count(recipestest.OpConnect)
		limit := 1<<20 - 1 - 8 - 4 - len(s.Path(root)) - 4 - 4 // a frame less header, path, and version
		for size := limit - 8; size < limit+8; size++ {
			_, err := s.Conn().Set(s.Path(root), make([]byte, size), -1)
			if size <= limit {
				require.NoError(t, err, size)
			} else {
				require.ErrorIs(t, err, zk.ErrShortBuffer, size)
			}
		}
		require.Equal(t, connects, link.Count(recipestest.OpConnect), "the connection was not cut")
	})
}

// An attempt fails as ctx ends. The error says both.
func TestErrorOfAnAttemptDoesNotHideTheEndOfItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		s := session(t, srv.Client(t))
		for range 50 { // whether the end or the error is seen first is chance
			ctx, cancel := context.WithCancel(t.Context())
			_, err := recipe.DoOnce(ctx, s, func(*zk.Conn) (struct{}, error) {
				cancel()
				return struct{}{}, zk.ErrConnectionClosed
			}, nil)
			require.ErrorIs(t, err, context.Canceled)
		}
	})
}

// An attempt has failed, and ctx ends while settle looks for what it has left. The error says both.
func TestCallWhoseContextEndsInSettleSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		s := session(t, srv.Client(t))
		ctx, cancel := context.WithCancel(t.Context())
		_, err := recipe.DoOnce(ctx, s, func(*zk.Conn) (struct{}, error) {
			return struct{}{}, zk.ErrConnectionClosed
		}, func(context.Context) (none struct{}, done bool, err error) {
			cancel()
			return none, false, nil
		})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, zk.ErrConnectionClosed)
	})
}
