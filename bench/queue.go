package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/must"
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
		enter: func(ctx context.Context, e *env) []*contestant { return offers(ctx, e, 1) },
	}, {
		name: "queue/offer-many", title: fmt.Sprintf("Offer, %d goroutines in one session", pipelined), unit: "entry; the floor is a create, as many at once",
		enter: func(ctx context.Context, e *env) []*contestant { return offers(ctx, e, pipelined) },
	}, {
		name: "queue/take", title: "Take, one by one", unit: "entry; the floor is a delete of a known node",
		enter: func(ctx context.Context, e *env) []*contestant {
			all := append(takes(ctx, e, 1, takeOne), e.peerConsumers(1)...)
			return append(all, rawTakes(ctx, e, bareBlind, false), rawTakes(ctx, e, bare, true))
		},
	}, {
		name: "queue/take-many", title: fmt.Sprintf("PollN of %d", batch), unit: fmt.Sprintf("entry; the floor is a delete of a known node, %d at once", pipelined),
		enter: func(ctx context.Context, e *env) []*contestant {
			return takes(ctx, e, pipelined, pollMany)
		},
	}, {
		name: "queue/take-4", title: "Take, four sessions", unit: "entry",
		slice: 200 * time.Millisecond, // the sessions must find each other in it
		enter: func(ctx context.Context, e *env) []*contestant {
			all := []*contestant{consumers(ctx, e, ours, 4, 1, takeOne), consumers(ctx, e, single, 1, 1, takeOne)}
			return append(all, e.peerConsumers(4)...)
		},
	}, {
		name: "queue/take-4x4", title: "Take, four sessions of four goroutines", unit: "entry",
		slice: 200 * time.Millisecond,
		enter: func(ctx context.Context, e *env) []*contestant {
			return []*contestant{consumers(ctx, e, ours, 4, 4, takeOne), consumers(ctx, e, ours+", 4x1", 4, 1, takeOne)}
		},
	}}
}}

// offers appends to a queue. Each round has a new queue.
func offers(ctx context.Context, e *env, workers int) []*contestant {
	all := []*contestant{rawOffers(ctx, e, floor, workers)}
	if workers == 1 {
		all = append(all, rawOffers(ctx, e, bare, workers))
	}

	t := new(traffic)
	client := e.client(ctx, t)
	all = append(all, &contestant{name: ours, traffic: t, run: e.onNewPath(func(ctx context.Context, m *meter, dir string) {
		q := queue.New(client, dir+"/q")
		must.Get(q.Offer(ctx, payload)) // it creates the missing nodes
		together(workers, func(ctx context.Context, _, _ int) { must.Get(q.Offer(ctx, payload)) })(ctx, m)
	})})

	return append(all, e.peersFor("offerloop", workers)...)
}

// rawOffers creates entries. With our requests, it also writes the receipt, in the same
// transaction.
func rawOffers(ctx context.Context, e *env, name string, workers int) *contestant {
	t := new(traffic)
	conn := e.raw(ctx, t)
	return &contestant{name: name, traffic: t, run: e.onNewPath(func(ctx context.Context, m *meter, dir string) {
		receipt := newReceipt(conn, dir)
		create := &zk.CreateRequest{Path: dir + "/qn-", Data: payload, Acl: acl, Flags: zk.FlagSequence}
		together(workers, func(context.Context, int, int) {
			if name == floor {
				must.Get(conn.Create(create.Path, create.Data, create.Flags, create.Acl))
			} else {
				must.Get(conn.Multi(create, receipt))
			}
		})(ctx, m)
	})}
}

// takes empties queues that were filled before. The floor does that many deletes at once.
func takes(ctx context.Context, e *env, deletes int, take consume) []*contestant {
	t := new(traffic)
	conn := e.raw(ctx, t)

	least := &contestant{name: floor, traffic: t, run: e.onNewPath(func(ctx context.Context, m *meter, dir string) {
		nodes := e.fill(m, dir, "qn-")
		// The workers must not wait for each other while they are measured.
		todo := make(chan string, len(nodes))
		for _, node := range nodes {
			todo <- node
		}

		close(todo)
		m.start()
		m.stop(inParallel(deletes, func(int) (n int) {
			for node := range todo {
				must.Succeed(conn.Delete(node, -1))
				if n++; !m.within() {
					break
				}
			}
			return n
		}))
	})}

	return []*contestant{least, consumers(ctx, e, ours, 1, 1, take)}
}

// newReceipt creates a node beside a queue, and returns the write to it that serves as a receipt.
func newReceipt(conn *zk.Conn, dir string) *zk.SetDataRequest {
	node := must.Get(conn.Create(dir+"/receipt-", nil, zk.FlagEphemeralSequential, acl))
	return &zk.SetDataRequest{Path: node, Data: []byte("1234"), Version: -1}
}

// rawTakes removes entries with our own requests: a transaction each, which also writes to a node
// of the session's own. If reads is true, the session reads the entries before it removes them.
func rawTakes(ctx context.Context, e *env, name string, reads bool) *contestant {
	t := new(traffic)
	conn := e.raw(ctx, t)
	return &contestant{name: name, traffic: t, run: e.onNewPath(func(ctx context.Context, m *meter, dir string) {
		nodes, receipt := e.fill(m, dir+"/q", "qn-"), newReceipt(conn, dir)
		m.start()
		m.stop(rawTake(m, conn, receipt, nodes, reads))
	})}
}

func rawTake(m *meter, c *zk.Conn, receipt *zk.SetDataRequest, nodes []string, reads bool) (n int) {
	var reading sync.WaitGroup
	defer reading.Wait()
	read := 0
	for ; n < len(nodes) && m.within(); n++ {
		// Read the next entries as soon as half of those that were read are gone.
		until := read
		if reads && read <= n+ahead/2 {
			until = min(len(nodes), n+ahead)
		}
		for ; read < until; read++ {
			node := nodes[read]
			reading.Go(func() { c.Get(node) }) // it may be deleted already
		}
		must.Get(c.Multi(&zk.DeleteRequest{Path: nodes[n], Version: -1}, receipt))
	}
	return n
}

// consume takes entries from a queue and returns how many.
type consume func(context.Context, *queue.Queue) (int, error)

func takeOne(ctx context.Context, q *queue.Queue) (int, error) {
	_, err := q.Poll(ctx)
	return 1, err
}

func pollMany(ctx context.Context, q *queue.Queue) (int, error) {
	entries, err := q.PollN(ctx, batch)
	return len(entries), err
}

// consumers are sessions that empty a queue, with so many goroutines each.
func consumers(ctx context.Context, e *env, name string, sessions, goroutines int, take consume) *contestant {
	t := new(traffic)
	clients := e.clients(ctx, t, sessions)

	c := &contestant{name: name, traffic: t}
	if sessions > 1 {
		c.shares = new(shares)
	}
	c.run = e.onNewPath(func(ctx context.Context, m *meter, dir string) {
		e.fill(m, dir+"/q", "qn-")
		// Each session counts for itself, so the counts need no lock.
		taken := make([]int, sessions)
		m.start()
		m.stop(inParallel(sessions, func(i int) int {
			q := queue.New(clients[i], dir+"/q")
			taken[i] = inParallel(goroutines, func(int) int { return consumeAll(ctx, m, q, take) })
			return taken[i]
		}))
		c.shares.add(taken)
	})

	return c
}

func consumeAll(ctx context.Context, m *meter, q *queue.Queue, take consume) (n int) {
	for n == 0 || m.within() {
		some, err := take(ctx, q)
		if errors.Is(err, queue.ErrEmpty) {
			break
		}
		must.Succeed(err)
		n += some
	}
	return n
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
	return e.peersWith("takeloop", func(ctx context.Context, m *meter, p *peer, dir string) {
		prefix := "qn-"
		if p.Name() == "kazoo" {
			prefix = "entry-100-" // with the priority that is its default
		}
		e.fill(m, dir+"/q", prefix)
		p.measured(ctx, m, "takeloop", dir+"/q", sessions, m.slice.Milliseconds())
	})
}

// onNewPath returns a run that calls do with a new path, and removes everything that is left there.
func (e *env) onNewPath(do func(ctx context.Context, m *meter, dir string)) func(context.Context, *meter) {
	return func(ctx context.Context, m *meter) {
		dir := e.newPath()
		do(ctx, m, dir)
		e.removeAll(dir)
	}
}

// fill creates as many entries as a round can be expected to take.
func (e *env) fill(m *meter, dir, prefix string) (nodes []string) {
	if _, err := e.admin.Create(dir, nil, 0, acl); !errors.Is(err, zk.ErrNodeExists) {
		must.Succeed(err)
	}

	// Enough for 20,000 a second, within bounds: filling isn't measured but takes time, too.
	n := min(max(int(m.slice.Seconds()*20000), 200), 4000)
	create := &zk.CreateRequest{Path: dir + "/" + prefix, Data: payload, Acl: acl, Flags: zk.FlagSequence}

	// A hundred creates keep each request far below the server's limit of a megabyte.
	for ops := range slices.Chunk(slices.Repeat([]any{create}, n), 100) {
		for _, a := range must.Get(e.admin.Multi(ops...)) {
			nodes = append(nodes, a.String)
		}
	}
	return nodes
}
