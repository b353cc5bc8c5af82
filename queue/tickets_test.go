package queue_test

import (
	"slices"
	"strings"
	"sync/atomic"
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

// A draw is a queue at which one session draws tickets. It never meets the other one, which only
// holds an item.
type draw struct {
	operator *protocol.Client
	conn     *zk.Conn // the operator's
	path     string
	link     *recipestest.Link // of the session that draws
	log      func() string
	q        *queue.Queue
	held     *queue.Item
}

// drawn runs a test at a queue with n entries besides the one that is held.
func drawn(t *testing.T, n int, test func(t *testing.T, d *draw)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		d := &draw{operator: srv.Client(t), link: srv.Link(t)}
		d.conn = suite.Session(t, d.operator).Conn()
		d.path = lasting(t, d.operator, srv.Root(t)+"/q")
		client, log := logged(d.link.Client(t))
		d.log, d.q = log, queue.New(client, d.path)
		producer := queue.New(d.operator, d.path)
		offer(t, producer, "held")
		d.held = reserve(t, queue.New(srv.Client(t), d.path))
		fill(t, producer, n)
		test(t, d)
		if d.held.Err() == nil {
			require.NoError(t, d.held.Ack(t.Context()))
		}
	})
}

// first is the node that tickets are drawn from, if none was there before.
func (d *draw) first() string { return d.path + "/zkrecipes/tickets-0" }

// nodes returns those that tickets are drawn from.
func (d *draw) nodes(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(children(t, d.operator, d.path+"/zkrecipes"), func(node string) bool {
		return !strings.HasPrefix(node, "tickets-")
	})
}

// poll takes n entries, with a pause before each.
func (d *draw) poll(t *testing.T, n int, pause time.Duration) {
	t.Helper()
	for range n {
		time.Sleep(pause)
		_, err := d.q.Poll(t.Context())
		require.NoError(t, err)
	}
}

// A consumer that may not draw tickets takes entries all the same, and does not try again and
// again.
func TestTicketsThatMayNotBeDrawn(t *testing.T) {
	for name, forbid := range map[string]func(t *testing.T, d *draw){
		"because it may not create their node": func(t *testing.T, d *draw) {
			d.link.Fail(recipestest.OpCreate, d.first(), int32(zkwire.CodeNoAuth), 100)
		},
		"because it may not write to their node": func(t *testing.T, d *draw) {
			_, err := d.conn.Create(d.first(), nil, 0, zk.WorldACL(zk.PermAll&^zk.PermWrite))
			require.NoError(t, err)
		},
		"any more": func(t *testing.T, d *draw) {
			d.poll(t, 5, 0)
			require.NotEmpty(t, d.nodes(t))
			_, err := d.conn.SetACL(d.first(), zk.WorldACL(zk.PermAll&^zk.PermWrite), -1)
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drawn(t, 100, func(t *testing.T, d *draw) {
				const n = 20
				forbid(t, d)
				created, sent := d.link.Count(recipestest.OpCreate), d.link.Count(recipestest.OpMulti)
				d.poll(t, n, 0)
				require.LessOrEqual(t, d.link.Count(recipestest.OpCreate)-created, 2)
				require.LessOrEqual(t, d.link.Count(recipestest.OpMulti)-sent, n+1)
				require.Equal(t, 1, strings.Count(d.log(), "draws no tickets"))
			})
		})
	}
}

// A consumer that is alone in the end draws no tickets.
func TestTicketsEndWithTheOtherConsumers(t *testing.T) {
	t.Parallel()
	drawn(t, 200, func(t *testing.T, d *draw) {
		d.poll(t, 5, 0)
		require.NotEmpty(t, d.nodes(t))
		require.NoError(t, d.held.Ack(t.Context()))
		d.poll(t, 30, 100*time.Millisecond)
		require.Empty(t, d.nodes(t))
	})
}

// Tickets for entries that are far ahead of those that are left are given up.
func TestTicketsFarAhead(t *testing.T) {
	t.Parallel()
	drawn(t, 200, func(t *testing.T, d *draw) {
		const ahead = "tickets-100000"
		_, err := d.conn.Create(d.path+"/zkrecipes/"+ahead, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		d.poll(t, 5, 0)
		require.NotContains(t, d.nodes(t), ahead)
		require.NotEmpty(t, d.nodes(t))
	})
}

// A call returns the error of each request that its tickets take.
func TestTicketsWithErrors(t *testing.T) {
	for name, c := range map[string]struct {
		n       int
		prepare func(t *testing.T, d *draw)
		op      recipestest.Op
		node    func(d *draw) string
		polls   int
		pause   time.Duration // before each of them
	}{
		"when the first one is drawn": {
			100, func(*testing.T, *draw) {}, recipestest.OpMulti, (*draw).first, 1, 0,
		},
		"when their node was created": {2, func(t *testing.T, d *draw) {
			d.poll(t, 1, 0)
			fill(t, queue.New(d.operator, d.path), 100)
		}, recipestest.OpGetChildren, func(d *draw) string { return d.path + "/zkrecipes" }, 1, 0},
		"when the entry of one has gone": {100, func(t *testing.T, d *draw) {
			d.poll(t, 5, 0)
			for _, node := range entries(t, d.operator, d.path)[1:4] {
				require.NoError(t, d.conn.Delete(d.path+"/"+node, -1))
			}
		}, recipestest.OpMulti, (*draw).first, 1, 0},
		"when entries are looked for that others have left": {100, func(t *testing.T, d *draw) {
			d.poll(t, 5, 0)
		}, recipestest.OpGetChildren, func(d *draw) string { return d.path }, 20, 250 * time.Millisecond},
		"when they are beyond the end": {20, func(t *testing.T, d *draw) {
			d.poll(t, 1, 0)
		}, recipestest.OpGetChildren, func(d *draw) string { return d.path }, 20, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drawn(t, c.n, func(t *testing.T, d *draw) {
				c.prepare(t, d)
				d.link.Fail(c.op, c.node(d), int32(zkwire.CodeInvalidACL), 1)
				var failed []error
				for range c.polls {
					time.Sleep(c.pause)
					if _, err := d.q.Poll(t.Context()); err != nil {
						failed = append(failed, err)
					}
				}
				require.Len(t, failed, 1)
				require.ErrorIs(t, failed[0], zk.ErrInvalidACL)
			})
		})
	}
}

// The records are deleted just before tickets are drawn.
func TestTicketsWithoutTheirDirectory(t *testing.T) {
	t.Parallel()
	drawn(t, 100, func(t *testing.T, d *draw) {
		d.link.Fail(recipestest.OpCreate, d.first(), int32(zkwire.CodeNoNode), 1)
		d.poll(t, 5, 0)
		require.NotEmpty(t, d.nodes(t))
	})
}

// A consumer does not get in its own way.
func TestTicketsOfOneConsumerDoNotCollide(t *testing.T) {
	t.Parallel()
	drawn(t, 2000, func(t *testing.T, d *draw) {
		var collisions collisions
		q := queue.New(d.link.Client(t, protocol.WithObserver(&collisions)), d.path)
		began := time.Now()
		d.link.Delay(10 * time.Millisecond)
		var wait suite.Group
		for range 4 {
			wait.Go(func() error {
				for range 400 {
					if _, err := q.Poll(t.Context()); err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, wait.Wait())
		require.Greater(t, time.Since(began), 2*suite.Session(t, d.operator).Timeout()/3)
		require.Zero(t, collisions.Load())
	})
}

// Collisions counts them.
type collisions struct{ atomic.Int64 }

func (c *collisions) Observe(e protocol.Event) {
	if e.Kind == protocol.EventCollided {
		c.Add(1)
	}
}
