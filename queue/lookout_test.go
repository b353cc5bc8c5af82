package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A consumer waits that may not watch what tells it of entries. It looks from time to time, and the
// log says so.
func TestWaitingWithoutALookout(t *testing.T) {
	for name, refuse := range map[string]func(*testing.T, *zk.Conn, *recipestest.Link, string){
		"the register may not be read": func(t *testing.T, conn *zk.Conn, _ *recipestest.Link, path string) {
			_, err := conn.SetACL(path+"/zkrecipes", zk.WorldACL(zk.PermAll&^zk.PermRead), -1)
			require.NoError(t, err)
		},
		"the line may not be read": func(t *testing.T, conn *zk.Conn, _ *recipestest.Link, path string) {
			_, err := conn.Create(path+"/zkrecipes/waiting", nil, 0, zk.WorldACL(zk.PermAll&^zk.PermRead))
			require.NoError(t, err)
		},
		"the next entry is refused": func(_ *testing.T, _ *zk.Conn, link *recipestest.Link, path string) {
			link.Fail(recipestest.OpGetChildren, path+"/qn-0000000001", int32(zkwire.CodeInvalidACL), 1)
		},
		"the queue's node is refused": func(_ *testing.T, _ *zk.Conn, link *recipestest.Link, path string) {
			link.Fail(recipestest.OpExists, path, int32(zkwire.CodeInvalidACL), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				operator, link := srv.Client(t), srv.Link(t)
				path := lasting(t, operator, srv.Root(t)+"/q")
				lasting(t, operator, path+"/zkrecipes")
				conn := suite.Session(t, operator).Conn()
				refuse(t, conn, link, path)
				defer open(conn, path)
				client, log := logged(link.Client(t))
				got := suite.Later(func() string {
					data, _ := queue.New(client, path).Take(suite.Lasting(t))
					return string(data)
				})
				time.Sleep(time.Second)
				require.Equal(t, 1, strings.Count(log(), "from time to time only"))
				require.Less(t, link.Count(recipestest.OpAny), 40)

				offered := time.Now()
				offer(t, queue.New(operator, path), "x")
				require.Equal(t, "x", <-got)
				require.Less(t, time.Since(offered), suite.Session(t, client).Timeout()/2)
			})
		})
	}
}

// A foreign client has reserved an entry, and gives it back without telling anyone. A consumer that
// waits finds it within a minute.
func TestForeignReservationThatEndsIsFound(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		operator := srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		create(t, operator, path+"/qn-0000000000", "x")
		create(t, operator, path+"/qn-0000000000/foreign", "")
		got := suite.Later(func() string {
			data, _ := queue.New(srv.Client(t), path).Take(suite.Within(t, 2*time.Minute))
			return string(data)
		})
		time.Sleep(time.Second)
		require.NoError(t, suite.Session(t, operator).Conn().Delete(path+"/qn-0000000000/foreign", -1))
		deleted := time.Now()
		require.Equal(t, "x", <-got)
		require.LessOrEqual(t, time.Since(deleted), time.Minute)
	})
}

// A foreign client creates an ephemeral entry, which cannot be reserved. Consumers that wait to
// reserve one leave the head of the line to one that can take it.
func TestEphemeralEntryComesToAConsumerThatTakes(t *testing.T) {
	for name, delay := range map[string]time.Duration{"at once": 0, "after a delay": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				operator := srv.Client(t)
				path := lasting(t, operator, srv.Root(t)+"/q")
				appear := func(prefix string) {
					t.Helper()
					_, err := suite.Session(t, operator).Conn().Create(
						path+prefix, []byte("x"), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
					require.NoError(t, err)
				}
				if delay > 0 {
					appear(fmt.Sprintf("/item-%d-0-0-100--", time.Now().Add(delay).UnixMilli()))
				}
				var links []*recipestest.Link
				var over []<-chan error
				for range 2 {
					link := srv.Link(t)
					q := queue.New(link.Client(t), path)
					links = append(links, link)
					over = append(over, suite.Later(func() error { _, err := q.Reserve(ctx); return err }))
					synctest.Wait()
				}
				taker := queue.New(srv.Client(t), path)
				got := suite.Later(func() string {
					data, _ := taker.Take(suite.Lasting(t))
					return string(data)
				})
				synctest.Wait()
				began := time.Now()
				if delay == 0 {
					appear("/qn-")
				}
				require.Equal(t, "x", suite.Wait(t, got))
				require.Less(t, time.Since(began), delay+5*time.Second)
				for _, link := range links {
					require.Less(t, link.Count(recipestest.OpAny), 100)
				}
				cancel()
				for _, ended := range over {
					require.ErrorIs(t, <-ended, context.Canceled)
				}
			})
		})
	}
}

// An ephemeral entry whose time has come is of no use to a consumer that waits to reserve one, and
// does not keep it busy.
func TestWaitingBesideAnEphemeralEntryIsQuiet(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		operator, link := srv.Client(t), srv.Link(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		prefix := fmt.Sprintf("%s/item-%d-0-0-100--", path, time.Now().Add(5*time.Second).UnixMilli())
		node, err := suite.Session(t, operator).Conn().Create(
			prefix, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := suite.Later(func() error { _, err := queue.New(link.Client(t), path).Reserve(ctx); return err })
		time.Sleep(10 * time.Second)
		before := link.Count(recipestest.OpGetData)
		time.Sleep(20 * time.Second)
		require.Less(t, link.Count(recipestest.OpGetData)-before, 5)
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.NoError(t, suite.Session(t, operator).Conn().Delete(node, -1))
	})
}

// The place of the consumer ahead has gone when it is looked at, or is refused. A wait goes on
// either way, and the log tells of a refusal.
func TestPlaceAheadInLineThatIsNotFound(t *testing.T) {
	for name, c := range map[string]struct {
		code  zkwire.Code
		warns int
	}{"gone": {zkwire.CodeNoNode, 0}, "refused": {zkwire.CodeInvalidACL, 1}} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				operator, link := srv.Client(t), srv.Link(t)
				path := lasting(t, operator, srv.Root(t)+"/q")
				client, log := logged(link.Client(t))
				take := func(c *protocol.Client) <-chan error {
					taken := suite.Later(func() error {
						_, err := queue.New(c, path).Take(suite.Lasting(t))
						return err
					})
					synctest.Wait()
					return taken
				}
				first := take(srv.Client(t))
				places := children(t, operator, path+"/zkrecipes/waiting")
				require.Len(t, places, 1)
				link.Fail(recipestest.OpGetData, path+"/zkrecipes/waiting/"+places[0], int32(c.code), 1)
				second := take(client)
				require.Equal(t, c.warns, strings.Count(log(), "from time to time only"))
				offer(t, queue.New(operator, path), "x", "y")
				require.NoError(t, <-first)
				require.NoError(t, <-second)
			})
		})
	}
}

// Several entries were released since a consumer has found them reserved. One of them may not be
// looked at, once. The call says so, and the next one finds them all.
func TestReleasedEntryThatMayNotBeLookedAt(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)
		holder, q := queue.New(srv.Client(t), path), queue.New(link.Client(t), path)
		items := reserved(t, 3, holder, heldBy(holder))
		require.ErrorIs(t, poll(t.Context(), q), queue.ErrEmpty)
		for _, it := range items[:2] {
			require.NoError(t, it.Nack(t.Context()))
		}
		link.Fail(recipestest.OpExists, path+"/"+items[0].ID(), int32(zkwire.CodeInvalidACL), 1)
		require.ErrorIs(t, poll(t.Context(), q), zk.ErrInvalidACL)
		require.Len(t, drain(t, t.Context(), q), 2)
		require.NoError(t, items[2].Ack(t.Context()))
	})
}

// The register has changed and may not be read, once. Or the consumers have changed and may not be
// listed. The call says so.
func TestRecordsThatMayNotBeRead(t *testing.T) {
	for name, op := range map[string]recipestest.Op{
		"data": recipestest.OpGetData, "children": recipestest.OpGetChildren,
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				link, path := srv.Link(t), srv.Root(t)
				holder, q := queue.New(srv.Client(t), path), queue.New(link.Client(t), path)
				items := reserved(t, 1, holder, heldBy(holder))
				require.ErrorIs(t, poll(t.Context(), q), queue.ErrEmpty)

				link.Delay(10 * time.Millisecond)
				listed := link.Answered(recipestest.OpGetChildren, link.Count(recipestest.OpGetChildren)+1)
				polled := suite.Later(func() error { return poll(t.Context(), q) })
				await(t, listed) // it has found nothing, and is about to look closer
				synctest.Wait()
				link.Fail(op, path+"/zkrecipes", int32(zkwire.CodeInvalidACL), 1)
				require.ErrorIs(t, poll(t.Context(), queue.New(srv.Client(t), path)), queue.ErrEmpty)
				require.NoError(t, items[0].Nack(t.Context()))
				require.ErrorIs(t, <-polled, zk.ErrInvalidACL)
				require.Equal(t, []string{"000000"}, drain(t, t.Context(), q))
			})
		})
	}
}

// Waits counts events by their kinds.
type waits map[protocol.EventKind]int

func (w waits) Observe(e protocol.Event) { w[e.Kind]++ }

// A call that is refused before it begins is no wait, and no observer hears of one.
func TestRefusedCallsAreNoWaits(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		events := make(waits)
		q := queue.New(srv.Client(t).With(protocol.WithObserver(events)), "no path")
		ctx := t.Context()
		_, err := q.Take(ctx)
		require.ErrorIs(t, err, zk.ErrInvalidPath)
		_, err = q.Reserve(ctx)
		require.ErrorIs(t, err, zk.ErrInvalidPath)
		require.ErrorIs(t, q.Drained(ctx), zk.ErrInvalidPath)
		synctest.Wait()
		require.Empty(t, events)
	})
}

// Items yields an error last, also to a loop that goes on.
func TestErrorIsTheLastOfItems(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		q := queue.New(srv.Client(t), srv.Root(t))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		n := 0
		for it, err := range q.Items(ctx) {
			require.Nil(t, it)
			require.ErrorIs(t, err, context.Canceled)
			if n++; n > 1 {
				break
			}
		}
		require.Equal(t, 1, n)
	})
}

// A function that fails after it has settled its item fails in nothing. The log is silent, and the
// worker does not pause.
func TestFunctionThatSettlesItsItemAndFails(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		client, log := logged(srv.Client(t))
		q := queue.New(client, srv.Root(t), queue.WithRetryDelay(func(int) time.Duration { return time.Hour }))
		offer(t, q, "a", "b")
		ctx, cancel := contextFor(t, time.Minute)
		defer cancel()
		calls := 0
		err := q.Consume(ctx, 1, func(ctx context.Context, it *queue.Item) error {
			if calls++; calls == 2 {
				cancel()
			}
			return errors.Join(it.Ack(ctx), errors.New("too late"))
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 2, calls)
		require.NotContains(t, log(), "not given back")
	})
}
