package queue_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A queue needs rights on its own node only. Here that node belongs to one identity, and its parent
// may be read and no more.
func TestQueueNeedsItsOwnNodeOnly(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		const scheme, user, password = "digest", "mail", "secret"
		acl := zk.DigestACL(zk.PermAll, user, password)
		identity := protocol.WithAuth(scheme, []byte(user+":"+password))
		operator := srv.Client(t, identity)
		root := lasting(t, operator, srv.Root(t)+"/queues")
		path := root + "/mail"
		conn := suite.Session(t, operator).Conn()
		_, err := conn.Create(path, nil, 0, acl)
		require.NoError(t, err)
		_, err = conn.SetACL(root, zk.WorldACL(zk.PermRead|zk.PermAdmin), -1)
		require.NoError(t, err)
		t.Cleanup(func() { open(conn, root) })

		newQueue := func() *queue.Queue {
			return queue.New(srv.Client(t, identity, protocol.WithACL(acl)), path)
		}
		q, other := newQueue(), newQueue()
		for name, use := range map[string]func(t *testing.T){
			"Offer and Poll": func(t *testing.T) {
				offer(t, q, "a")
				data, err := q.Poll(t.Context())
				require.NoError(t, err)
				require.Equal(t, "a", string(data))
			},
			"OfferAll and PollN": func(t *testing.T) {
				_, err := q.OfferAll(t.Context(), numbered(0, 3))
				require.NoError(t, err)
				data, err := q.PollN(t.Context(), 3)
				require.NoError(t, err)
				require.Equal(t, texts(numbered(0, 3)), texts(data))
			},
			"Reserve, Nack and Ack": func(t *testing.T) {
				offer(t, q, "a")
				it, err := q.Reserve(t.Context())
				require.NoError(t, err)
				require.NoError(t, it.Nack(t.Context()))
				it, err = q.TryReserve(t.Context())
				require.NoError(t, err)
				require.Equal(t, 2, it.Attempt())
				require.NoError(t, it.Ack(t.Context()))
			},
			"a Take that waits": func(t *testing.T) {
				taken := suite.Later(func() string {
					data, _ := q.Take(patient(t))
					return string(data)
				})
				offer(t, other, "a")
				require.Equal(t, "a", suite.Wait(t, taken))
			},
			"Len and Peek": func(t *testing.T) {
				offer(t, q, "a")
				n, err := other.Len(t.Context())
				require.NoError(t, err)
				require.Equal(t, 1, n)
				data, err := other.Peek(t.Context())
				require.NoError(t, err)
				require.Equal(t, "a", string(data))
			},
		} {
			t.Run(name, func(t *testing.T) {
				defer drain(t, t.Context(), q)
				use(t)
			})
		}
	})
}

// open gives all rights on a node, and on those below it, to all clients. The test's own clean-up
// needs that.
func open(conn *zk.Conn, path string) {
	_, _ = conn.SetACL(path, zk.WorldACL(zk.PermAll), -1)
	names, _, _ := conn.Children(path)
	for _, name := range names {
		open(conn, path+"/"+name)
	}
}
