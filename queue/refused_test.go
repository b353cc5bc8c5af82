package queue_test

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A consumer that may not count the others takes all the same: counting serves order only.
func TestConsumersThatCannotBeCounted(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		client := srv.Client(t)
		path := lasting(t, client, srv.Root(t)+"/q")
		conn := suite.Session(t, client).Conn()
		_, err := conn.Create(path+"/zkrecipes", nil, 0, zk.WorldACL(zk.PermAll&^zk.PermRead))
		require.NoError(t, err)
		link := srv.Link(t)
		counting, log := logged(link.Client(t))
		q, other := queue.New(counting, path), queue.New(srv.Client(t), path)
		_, err = other.OfferAll(t.Context(), numbered(0, 4))
		require.NoError(t, err)
		read := link.Answered(recipestest.OpGetData, link.Count(recipestest.OpGetData)+4)
		_, err = q.Take(t.Context())
		require.NoError(t, err)
		await(t, read)
		_, err = other.Take(t.Context())
		require.NoError(t, err)

		data, err := q.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, "000002", string(data))
		require.Equal(t, 1, strings.Count(log(), "cannot count its consumers"))
		_, err = conn.SetACL(path+"/zkrecipes", zk.WorldACL(zk.PermAll), -1) // the test's own clean-up
		require.NoError(t, err)
	})
}

// observer collects how waits have ended, and what is tried again.
type observer struct {
	mu   sync.Mutex
	errs []error
}

func (o *observer) all() []error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.errs)
}

func (o *observer) Observe(e protocol.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.Kind == protocol.EventAcquired || e.Kind == protocol.EventRetried {
		o.errs = append(o.errs, e.Err)
	}
}

// A consumer that may not stand in line waits all the same, and its observer hears of it.
func TestWaitingWithoutALine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		operator := srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		conn := suite.Session(t, operator).Conn()
		lasting(t, operator, path+"/zkrecipes")
		_, err := conn.Create(path+"/zkrecipes/waiting", nil, 0, zk.WorldACL(zk.PermRead|zk.PermAdmin))
		require.NoError(t, err)
		var o observer
		waiting, log := logged(srv.Client(t).With(protocol.WithObserver(&o)))
		q := queue.New(waiting, path)
		got := make(chan string, 1)
		ctx := patient(t)
		go func() { data, _ := q.Take(ctx); got <- string(data) }()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Len(t, o.all(), 1)
		require.ErrorIs(t, o.all()[0], zk.ErrNoAuth)
		require.Equal(t, 1, strings.Count(log(), "place in line"))

		// Once it may, it is told of an offer at once.
		_, err = conn.SetACL(path+"/zkrecipes/waiting", zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		offer(t, queue.New(operator, path), "x")
		synctest.Wait()
		select {
		case data := <-got:
			require.Equal(t, "x", data)
		default:
			t.Error("the offer was not noticed")
		}
		require.NoError(t, o.all()[len(o.all())-1])
	})
}

// logged returns a client that logs to a buffer, and what is in there.
func logged(c *protocol.Client) (*protocol.Client, func() string) {
	var mu sync.Mutex
	var all strings.Builder
	w := writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return all.Write(p)
	})
	return c.With(protocol.WithLogger(slog.New(slog.NewTextHandler(w, nil)))), func() string {
		mu.Lock()
		defer mu.Unlock()
		return all.String()
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// An item that may not be deleted comes back as soon as it may, and the log says why it did not
// before.
func TestClaimIsDeletedOnceThatIsPermitted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		operator := srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		conn := suite.Session(t, operator).Conn()
		const entry = "/qn-0000000000"
		_, err := conn.Create(path+entry, nil, 0, zk.WorldACL(zk.PermAll&^zk.PermDelete))
		require.NoError(t, err)
		client, log := logged(srv.Client(t))
		it := reserve(t, queue.New(client, path))

		require.ErrorIs(t, it.Nack(t.Context()), zk.ErrNoAuth)
		require.Contains(t, log(), claimOf(it))
		_, err = conn.SetACL(path+entry, zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		again := reserve(t, queue.New(operator, path))
		require.Equal(t, it.ID(), again.ID())
		require.NoError(t, again.Ack(t.Context()))
	})
}
