package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/queue"
)

const (
	pipelined = 64  // requests under way at once
	batch     = 100 // of PollN
	ahead     = 32  // how many entries are read before they are removed
	single    = ours + ", one of them"
	bareBlind = bare + " but for reads"
)

var queueChapter = chapter{"queue", "A queue, entries of 100 bytes", func(*env) []work {
	return []work{{
		name: "queue/offer", title: "Offer, one at a time", unit: "entry; the floor is a create",
		goals: []goal{atMostFloor(1.05)},
		enter: func(ctx context.Context, e *env) ([]*contestant, error) { return offers(ctx, e, 1) },
	}, {
		name: "queue/offer-many", title: fmt.Sprintf("Offer, %d goroutines in one session", pipelined), unit: "entry; the floor is a create, as many at once",
		goals: []goal{ofFloorRate(0.85)},
		enter: func(ctx context.Context, e *env) ([]*contestant, error) { return offers(ctx, e, pipelined) },
	}, {
		name: "queue/take", title: "Take, one by one", unit: "entry; the floor is a delete of a known node",
		goals: []goal{atMostFloor(1.15)},
		enter: func(ctx context.Context, e *env) ([]*contestant, error) {
			all, err := takes(ctx, e, 1, 1, takeOne, "take")
			if err != nil {
				return nil, err
			}
			blind, err := rawTakes(ctx, e, bareBlind, 1, 0)
			if err != nil {
				return nil, err
			}
			reading, err := rawTakes(ctx, e, bare, 1, 1)
			return append(all, blind, reading), err
		},
	}, {
		name: "queue/take-many", title: fmt.Sprintf("PollN of %d", batch), unit: fmt.Sprintf("entry; the floor is a delete of a known node, %d at once", pipelined),
		goals: []goal{ofFloorRate(0.6)},
		enter: func(ctx context.Context, e *env) ([]*contestant, error) {
			return takes(ctx, e, pipelined, 1, pollMany, "")
		},
	}, {
		name: "queue/take-4", title: "Take, four sessions", unit: "entry",
		slice: 200 * time.Millisecond, // the sessions must find each other in it
		goals: []goal{timesThe(single, 1), timesBestPeer(3)},
		enter: fourConsumers,
	},
		pools("take", "Take", takeOne, 4, 4),
		pools("take", "Take", takeOne, 8, 8),
		pools("reserve", "Reserve and Ack", reserveOne, 4, 4),
	}
}}

// pools is the work of several sessions with several goroutines each. Beside it as many sessions of
// one goroutine do the same.
func pools(name, title string, take consume, sessions, goroutines int) work {
	alone := fmt.Sprintf("%s, %dx1", ours, sessions)
	return work{
		name:  fmt.Sprintf("queue/%s-%dx%d", name, sessions, goroutines),
		title: fmt.Sprintf("%s, %d sessions of %d goroutines", title, sessions, goroutines), unit: "entry",
		slice: 200 * time.Millisecond, // the sessions must find each other in it
		goals: []goal{timesThe(alone, 1)},
		enter: func(ctx context.Context, e *env) ([]*contestant, error) {
			many, err := consumers(ctx, e, ours, sessions, goroutines, take)
			if err != nil {
				return nil, err
			}
			one, err := consumers(ctx, e, alone, sessions, 1, take)
			return []*contestant{many, one}, err
		},
	}
}

// offers appends to a queue. Each round has a new queue.
func offers(ctx context.Context, e *env, workers int) ([]*contestant, error) {
	t := new(traffic)
	conn, err := e.raw(ctx, t)
	if err != nil {
		return nil, err
	}

	all := []*contestant{{name: floor, traffic: t, run: func(ctx context.Context, m *meter) error {
		return e.onNewPath(func(dir string) error {
			return together(workers, func(context.Context, int, int) error {
				_, err := conn.Create(dir+"/qn-", payload, zk.FlagSequence, acl)
				return err
			})(ctx, m)
		})
	}}}

	if workers == 1 {
		t := new(traffic)
		conn, err := e.raw(ctx, t)
		if err != nil {
			return nil, err
		}

		all = append(all, &contestant{name: bare, traffic: t, run: func(ctx context.Context, m *meter) error {
			return e.onNewPath(func(dir string) error {
				create := &zk.CreateRequest{Path: dir + "/qn-", Data: payload, Acl: acl, Flags: zk.FlagSequence}
				receipt, err := newReceipt(conn, dir)
				if err != nil {
					return err
				}
				return together(workers, func(context.Context, int, int) error {
					_, err := conn.Multi(create, receipt)
					return err
				})(ctx, m)
			})
		}})
	}

	t = new(traffic)
	client, err := e.client(ctx, t)
	if err != nil {
		return nil, err
	}

	all = append(all, &contestant{name: ours, traffic: t, run: func(ctx context.Context, m *meter) error {
		return e.onNewPath(func(dir string) error {
			q := queue.New(client, dir+"/q")
			if _, err := q.Offer(ctx, payload); err != nil { // it creates the missing nodes
				return err
			}
			return together(workers, func(ctx context.Context, _, _ int) error {
				_, err := q.Offer(ctx, payload)
				return err
			})(ctx, m)
		})
	}})

	return append(all, e.peersWith("offerloop", func(p *peer) func(context.Context, *meter) error {
		return func(ctx context.Context, m *meter) error {
			return e.onNewPath(func(dir string) error {
				return p.measured(ctx, m, "offerloop", dir+"/q", workers, m.slice.Milliseconds())
			})
		}
	})...), nil
}

// takes empties queues that were filled before. The floor does that many deletes at once, and we
// work in that many sessions.
func takes(ctx context.Context, e *env, deletes, sessions int, take consume, peers string) ([]*contestant, error) {
	t := new(traffic)
	conn, err := e.raw(ctx, t)
	if err != nil {
		return nil, err
	}

	all := []*contestant{{name: floor, traffic: t, run: func(ctx context.Context, m *meter) error {
		return e.onNewPath(func(dir string) error {
			nodes, err := e.fill(m, dir, "qn-")
			if err != nil {
				return err
			}

			todo := make(chan string, len(nodes))
			for _, node := range nodes {
				todo <- node
			}

			close(todo)
			m.start()
			n, err := inParallel(deletes, func(int) (n int, err error) {
				for node := range todo {
					if err := conn.Delete(node, -1); err != nil {
						return n, err
					}
					if n++; !m.within() {
						break
					}
				}
				return n, nil
			})

			m.stop(n)
			return err
		})
	}}}

	mine, err := consumers(ctx, e, ours, sessions, 1, take)
	if err != nil {
		return nil, err
	}

	all = append(all, mine)
	if peers == "" {
		return all, nil
	}

	return append(all, e.peerConsumers(sessions)...), nil
}

// newReceipt creates a node beside a queue, and returns the write to it that serves as a receipt.
func newReceipt(conn *zk.Conn, dir string) (*zk.SetDataRequest, error) {
	node, err := conn.Create(dir+"/receipt-", nil, zk.FlagEphemeralSequential, acl)
	return &zk.SetDataRequest{Path: node, Data: []byte("1234"), Version: -1}, err
}

// rawTakes removes entries with our own requests, in sessions that never meet. In the same
// transaction, each session writes to a node of its own. With one reader it reads only its own
// entries before it removes them. With as many readers as sessions it reads and watches all
// entries.
func rawTakes(ctx context.Context, e *env, name string, sessions, readers int) (*contestant, error) {
	t := new(traffic)
	conns, err := e.raws(ctx, t, sessions)
	if err != nil {
		return nil, err
	}

	return &contestant{name: name, traffic: t, run: func(ctx context.Context, m *meter) error {
		return e.onNewPath(func(dir string) error {
			nodes, err := e.fill(m, dir+"/q", "qn-")
			if err != nil {
				return err
			}

			receipts := make([]*zk.SetDataRequest, sessions)

			for i, c := range conns {
				if receipts[i], err = newReceipt(c, dir); err != nil {
					return err
				}
			}

			m.start()
			n, err := inParallel(sessions, func(i int) (int, error) {
				return rawTake(m, conns[i], receipts[i], nodes, i, sessions, readers)
			})

			m.stop(n)
			return err
		})
	}}, nil
}

// rawTake removes every step-th of the nodes, starting at from.
func rawTake(m *meter, c *zk.Conn, receipt *zk.SetDataRequest, nodes []string, from, step, readers int) (n int, err error) {
	var reading sync.WaitGroup
	defer reading.Wait()
	read := 0

	for i := from; i < len(nodes) && m.within(); i += step {
		until := read
		if readers > 0 && read <= i+ahead/2*step { // many at a time
			until = min(len(nodes), i+ahead*step)
		}

		for ; read < until; read++ {
			if readers < step && read%step != from {
				continue
			}
			node := nodes[read]
			reading.Go(func() {
				if readers == 1 {
					c.Get(node)
				} else {
					c.GetW(node) // it may be deleted already
				}
			})
		}

		if _, err := c.Multi(&zk.DeleteRequest{Path: nodes[i], Version: -1}, receipt); err != nil {
			return n, err
		}

		n++
	}

	return n, nil
}

func fourConsumers(ctx context.Context, e *env) (all []*contestant, err error) {
	one, err := consumers(ctx, e, single, 1, 1, takeOne)
	if err != nil {
		return nil, err
	}

	four, err := consumers(ctx, e, ours, 4, 1, takeOne)
	if err != nil {
		return nil, err
	}

	all = append(all, four, one)

	for _, raw := range []struct {
		name              string
		sessions, readers int
	}{{bareBlind, 4, 0}, {bareBlind + ", one", 1, 0}, {bare, 4, 1}, {bare + ", one", 1, 1}, {bare + ", all read all", 4, 4}} {
		c, err := rawTakes(ctx, e, raw.name, raw.sessions, raw.readers)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}

	return append(all, e.peerConsumers(4)...), nil
}

// consume takes entries from a queue and returns how many.
type consume func(context.Context, *queue.Queue) (int, error)

func takeOne(ctx context.Context, q *queue.Queue) (int, error) {
	_, err := q.Poll(ctx)
	return 1, err
}

func reserveOne(ctx context.Context, q *queue.Queue) (int, error) {
	it, err := q.TryReserve(ctx)
	if err != nil {
		return 0, err
	}
	return 1, it.Ack(ctx)
}

func pollMany(ctx context.Context, q *queue.Queue) (int, error) {
	entries, err := q.PollN(ctx, batch)
	return len(entries), err
}

// consumers are sessions that empty a queue, with so many goroutines each.
func consumers(ctx context.Context, e *env, name string, sessions, goroutines int, take consume) (*contestant, error) {
	t := new(traffic)
	clients, err := e.clients(ctx, t, sessions)
	if err != nil {
		return nil, err
	}

	c := &contestant{name: name, traffic: t}
	if sessions > 1 {
		c.shares = new(shares)
	}
	c.run = func(ctx context.Context, m *meter) error {
		return e.onNewPath(func(dir string) error {
			if _, err := e.fill(m, dir+"/q", "qn-"); err != nil {
				return err
			}

			taken := make([]int, sessions)
			m.start()
			n, err := inParallel(sessions, func(i int) (n int, err error) {
				q := queue.New(clients[i], dir+"/q")
				taken[i], err = inParallel(goroutines, func(int) (int, error) { return consumeAll(ctx, m, q, take) })
				return taken[i], err
			})
			m.stop(n)
			c.shares.add(taken)
			return err
		})
	}

	return c, nil
}

func consumeAll(ctx context.Context, m *meter, q *queue.Queue, take consume) (n int, err error) {
	for n == 0 || m.within() {
		some, err := take(ctx, q)
		if errors.Is(err, queue.ErrEmpty) {
			break
		}
		if err != nil {
			return n, err
		}
		n += some
	}
	return n, nil
}

// shares notes how evenly sessions share the entries of each round. A nil *shares notes nothing.
type shares struct {
	least, most []float64 // of a session, as multiples of the average, by round
}

func (s *shares) add(taken []int) {
	total := 0
	for _, n := range taken {
		total += n
	}
	if s == nil || total == 0 {
		return
	}

	average := float64(total) / float64(len(taken))
	s.least = append(s.least, float64(slices.Min(taken))/average)
	s.most = append(s.most, float64(slices.Max(taken))/average)
}

// String returns the medians.
func (s *shares) String() string {
	return fmt.Sprintf("shares %.2f to %.2f", quantile(s.least, 0.5), quantile(s.most, 0.5))
}

func (e *env) peerConsumers(sessions int) []*contestant {
	return e.peersWith("takeloop", func(p *peer) func(context.Context, *meter) error {
		prefix := "qn-"
		if p.Name() == "kazoo" {
			prefix = "entry-100-" // with the priority that is its default
		}
		return func(ctx context.Context, m *meter) error {
			return e.onNewPath(func(dir string) error {
				if _, err := e.fill(m, dir+"/q", prefix); err != nil {
					return err
				}
				return p.measured(ctx, m, "takeloop", dir+"/q", sessions, m.slice.Milliseconds())
			})
		}
	})
}

// onNewPath calls do with a new path, and removes everything that is left there.
func (e *env) onNewPath(do func(dir string) error) error {
	dir, err := e.newPath()
	if err != nil {
		return err
	}
	if err := do(dir); err != nil {
		return err
	}
	return e.removeAll(dir)
}

// fill creates as many entries as a round can be expected to take.
func (e *env) fill(m *meter, dir, prefix string) (nodes []string, err error) {
	if _, err := e.admin.Create(dir, nil, 0, acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return nil, err
	}

	n := min(max(int(m.slice.Seconds()*20000), 200), 4000)
	create := &zk.CreateRequest{Path: dir + "/" + prefix, Data: payload, Acl: acl, Flags: zk.FlagSequence}

	for ops := range slices.Chunk(slices.Repeat([]any{create}, n), 100) {
		answers, err := e.admin.Multi(ops...)
		if err != nil {
			return nil, err
		}
		for _, a := range answers {
			nodes = append(nodes, a.String)
		}
	}

	return nodes, nil
}
