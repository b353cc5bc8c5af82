package queue_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// gets are the calls that do not wait, and take or reserve the next entry.
var gets = map[string]verb{
	"Poll": pollOne,
	"PollN": func(ctx context.Context, q *queue.Queue) (string, error) {
		data, err := q.PollN(ctx, 1)
		return strings.Join(texts(data), " "), err
	},
	"TryReserve": func(ctx context.Context, q *queue.Queue) (string, error) {
		it, err := q.TryReserve(ctx)
		if err != nil {
			return "", err
		}
		return string(it.Data()), it.Ack(ctx)
	},
}

// An entry that was offered before a call is found by it, also by a client whose server lags.
func TestPollFindsWhatWasOfferedBeforeTheCall(t *testing.T) {
	for name, get := range gets {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				follower, link := srv.Embedded().Follower(), srv.Link(t)
				link.Move(follower)
				c := link.Client(t)
				suite.Session(t, c)
				follower.Lag(100 * time.Millisecond)
				path := srv.Root(t) + "/q"
				q, other := queue.New(c, path), queue.New(srv.Client(t), path)
				for i := range 3 {
					offer(t, other, fmt.Sprint(i))
					data, err := get(t.Context(), q)
					require.NoError(t, err)
					require.Equal(t, fmt.Sprint(i), data)
				}
			})
		})
	}
}

// ErrEmpty is true: an entry that came back before the call is found by it, although the caller has
// seen that all entries were reserved.
func TestErrEmptyIsTrue(t *testing.T) {
	const entries = 6
	for how, free := range map[string]func(*testing.T, *recipestest.Server, *protocol.Client, *queue.Item){
		"nack": func(t *testing.T, _ *recipestest.Server, _ *protocol.Client, it *queue.Item) {
			require.NoError(t, it.Nack(t.Context()))
		},
		"crash": func(t *testing.T, srv *recipestest.Server, holder *protocol.Client, _ *queue.Item) {
			srv.ExpireSession(suite.Session(t, holder).ID())
		},
		"close": func(t *testing.T, _ *recipestest.Server, holder *protocol.Client, _ *queue.Item) {
			suite.Close(t, holder)
		},
	} {
		for name, get := range gets {
			t.Run(how+" "+name, func(t *testing.T) {
				suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
					root := srv.Root(t)
					for _, which := range []int{0, entries - 2, entries - 1} {
						path := lasting(t, srv.Client(t), fmt.Sprintf("%s/%d", root, which))
						one, all, asking := srv.Client(t), srv.Client(t), srv.Client(t)
						holder, others, q := queue.New(one, path), queue.New(all, path), queue.New(asking, path)
						var item *queue.Item
						for i := range entries {
							offer(t, others, fmt.Sprint(i))
							if i == which {
								item = reserve(t, holder)
								require.Equal(t, fmt.Sprint(i), string(item.Data()))
							} else {
								reserve(t, others)
							}
						}
						_, err := get(t.Context(), q)
						require.ErrorIs(t, err, queue.ErrEmpty)

						free(t, srv, one, item)
						data, err := get(t.Context(), q)
						require.NoError(t, err, "of entry %d", which)
						require.Equal(t, fmt.Sprint(which), data)
						suite.Close(t, one, all, asking)
					}
				})
			})
		}
	}
}

// An entry that cannot be taken or reserved does not block those behind it.
func TestBadEntryIsSetAside(t *testing.T) {
	create := func(flags int32, perms int32) func(*testing.T, *zk.Conn, string) {
		return func(t *testing.T, conn *zk.Conn, path string) {
			node, err := conn.Create(path+"/qn-", []byte("bad"), flags|zk.FlagSequence, zk.WorldACL(perms))
			require.NoError(t, err)
			t.Cleanup(func() { conn.Delete(node, -1) })
		}
	}
	unreadable := create(0, zk.PermAll&^zk.PermRead)
	for _, c := range []struct {
		name  string
		bad   func(*testing.T, *zk.Conn, string)
		verbs []string
	}{
		{"we may not read", unreadable, []string{"Poll", "PollN", "TryReserve"}},
		{"we may not write", create(0, zk.PermAll&^zk.PermWrite), []string{"TryReserve"}},
		{"we may not create children", create(0, zk.PermAll&^zk.PermCreate), []string{"TryReserve"}},
		{"ephemeral", create(zk.FlagEphemeral, zk.PermAll), []string{"TryReserve"}},
		{"many we may not read", func(t *testing.T, conn *zk.Conn, path string) {
			for range 50 {
				unreadable(t, conn, path)
			}
		}, []string{"Poll", "PollN", "TryReserve"}},
	} {
		for _, name := range c.verbs {
			t.Run(name+" "+c.name, func(t *testing.T) {
				suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
					operator := srv.Client(t)
					path := lasting(t, operator, srv.Root(t)+"/q")
					c.bad(t, suite.Session(t, operator).Conn(), path)
					clients := []*protocol.Client{operator, srv.Client(t), srv.Client(t)}
					one, other := queue.New(clients[1], path), queue.New(clients[2], path)
					offer(t, one, "a", "b")
					for _, want := range []string{"a", "b"} {
						data, err := gets[name](t.Context(), one)
						require.NoError(t, err)
						require.Equal(t, want, data)
						one, other = other, one
					}
					suite.Close(t, clients...)
				})
			})
		}
	}
}

// An item that cannot become a dead letter does not block those behind it.
func TestItemThatCannotBeADeadLetterIsSetAside(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		operator, crashing := srv.Client(t), srv.Client(t)
		root := srv.Root(t)
		path := lasting(t, operator, root+"/q")
		conn := suite.Session(t, operator).Conn()
		_, err := conn.Create(root+"/dead", nil, 0, zk.WorldACL(zk.PermRead|zk.PermDelete))
		require.NoError(t, err)
		offer(t, queue.New(operator, path), "poison", "good")
		it := reserve(t, queue.New(crashing, path))
		require.Equal(t, "poison", string(it.Data()))
		suite.Close(t, crashing)

		q := queue.New(operator, path, queue.WithDeadLetter(queue.New(operator, root+"/dead"), 1))
		it, err = q.TryReserve(t.Context())
		require.NoError(t, err)
		require.Equal(t, "good", string(it.Data()))
		require.NoError(t, it.Ack(t.Context()))
		n, err := q.Len(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n, "it was dropped")
	})
}

// An entry that was read while it was reserved, and released before that was looked at, is found.
func TestEntryReleasedAfterItWasReadIsFound(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		suite.Sweep(t, func(step int) bool {
			operator := srv.Client(t)
			path := lasting(t, operator, root+"/"+string(rune('A'+step)))
			link := srv.Link(t)
			q, other := queue.New(link.Client(t), path), queue.New(srv.Client(t), path)
			offer(t, other, "a", "b", "c")
			var items []*queue.Item
			met := suite.At(link, step, func() {
				for range 3 {
					if it, err := other.TryReserve(context.Background()); err == nil {
						items = append(items, it)
					}
				}
				if len(items) > 0 && string(items[0].Data()) == "a" {
					items[0].Nack(context.Background())
					items = items[1:]
				}
			})
			q.Poll(t.Context()) // which may be late
			if !met() {
				return false
			}
			time.Sleep(50 * time.Millisecond)
			for _, it := range items {
				require.NoError(t, it.Nack(t.Context()))
			}
			drain(t, t.Context(), q)
			require.Empty(t, entries(t, operator, path), "step %d", step)
			return true
		})
	})
}
