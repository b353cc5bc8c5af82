package sim_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// truthfulSyncs is for simulations that check what a call must know after a sync. A leader that was
// deposed answers syncs, too.
var truthfulSyncs = sim.WithoutFaults(sim.Deposed)

// Several queues of several goroutines of several clients do everything there is.
func TestSimQueue(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		s := newQueueSim(w, queue.WithRetryDelay(func(int) time.Duration { return w.Timeout / 8 }))
		s.drawPriorities()
		if w.Rand.IntN(2) == 0 {
			s.dead = queue.New(w.Operator(), w.Path+"-dead")
			s.attempts = 1 + w.Rand.IntN(3)
		}
		s.work(2+w.Rand.IntN(2), func(u *queueUser) []verb {
			return []verb{
				u.offer, u.offer, u.offerAll, u.offerAfter, u.offerKey, u.offerWait, u.take, u.poll, u.pollN,
				u.reserve, u.reserve, u.tryReserve, u.consume, u.list, u.remove, u.free, u.drained,
			}
		})
	}, truthfulSyncs)
}

// An operator deletes receipts or the line of those that wait, while clients use the queue.
func TestSimQueueWiped(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		s := newQueueSim(w)
		s.work(2, func(u *queueUser) []verb {
			return []verb{u.offer, u.offer, u.offerAll, u.offerAfter, u.take, u.poll, u.pollN, u.reserve, u.tryReserve, u.consume}
		})
		s.wipe()
	}, truthfulSyncs)
}

// There is a maximum length.
func TestSimQueueBounded(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		s := newQueueSim(w)
		s.most = 1 + w.Rand.IntN(5)
		s.opts = append(s.opts, queue.WithMaxLength(s.most))
		s.work(2+w.Rand.IntN(3), func(u *queueUser) []verb {
			return []verb{
				u.offer, u.offer, u.offerAll, u.offerWait, u.offerWait, u.offerKey, u.offerAfter,
				u.poll, u.take, u.pollN, u.reserve, u.reserve,
			}
		})
		s.measure()
	}, truthfulSyncs)
}

// Nothing is reserved, so what is there at any time is known well.
func TestSimQueueEmpty(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		s := newQueueSim(w)
		s.work(2+w.Rand.IntN(3), func(u *queueUser) []verb {
			return []verb{u.offer, u.offer, u.offerAll, u.poll, u.poll, u.pollN, u.take, u.list, u.drained}
		})
	}, truthfulSyncs)
}

func TestSimQueueOrder(t *testing.T) { sim.Run(t, inOrder, truthfulSyncs, withoutNewQueues) }

// By this seed an entry goes back to its place while younger entries are read ahead.
func TestSimQueueOrderOfReturns(t *testing.T) {
	sim.Run(t, inOrder, truthfulSyncs, withoutNewQueues, sim.WithSeed(3067609226))
}

// A queue that is made anew numbers its entries anew.
var withoutNewQueues = sim.WithoutFaults(sim.Uproot)

// inOrder has a single session consume, with several goroutines, what others offer.
func inOrder(w *sim.World) {
	s := newQueueSim(w)
	s.work(2+w.Rand.IntN(2), func(u *queueUser) []verb {
		if u.consumes {
			return []verb{u.poll, u.poll, u.pollN, u.take, u.take, u.take}
		}
		return []verb{u.offer, u.offer, u.offerAll}
	})
	s.checkQueue()
}

// withoutForce leaves out the operator, who would end reservations.
var withoutForce = sim.WithoutFaults(sim.Deposed, sim.Deletion, sim.Uproot)

func TestSimQueueIsAQueue(t *testing.T) { sim.Run(t, inLine(false), withoutForce) }

// inLine has one process at a time consume what others offer. Processes die, and what a consumer
// had reserved then comes back in its place. A consumer with a bug takes the newest entry now and
// then.
func inLine(bug bool) func(*sim.World) {
	return func(w *sim.World) {
		s := newQueueSim(w)
		s.mortal, s.inPlace, s.rounds = true, true, 16
		s.drawPriorities()
		s.work(2+w.Rand.IntN(2), func(u *queueUser) []verb {
			switch {
			case !u.consumes:
				return []verb{u.offer, u.offer, u.offerAfter}
			case bug:
				return []verb{u.reserve, u.tryReserve, u.tryReserve, u.tryReserve, u.takeNewest}
			}
			return []verb{u.reserve, u.tryReserve, u.tryReserve, u.tryReserve}
		})
		s.checkQueue()
	}
}

// Consumers race for a queue that is long enough for tickets.
func TestSimQueueRace(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		s := newQueueSim(w)
		s.fill(40 + w.Rand.IntN(80))
		s.rounds = 30
		s.work(2+w.Rand.IntN(3), func(u *queueUser) []verb {
			return []verb{u.poll, u.poll, u.poll, u.poll, u.poll, u.poll, u.poll, u.pollN, u.reserve}
		})
	}, truthfulSyncs)
}

// A call that waits does not wait beside an entry.
func TestSimQueueWakes(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		s := newQueueSim(w, queue.WithRetryDelay(func(int) time.Duration { return w.Timeout / 16 }))
		s.wakes, s.history.grace = true, w.Timeout/16
		s.work(2+w.Rand.IntN(3), func(u *queueUser) []verb {
			return []verb{u.offer, u.offerAll, u.offerAfter, u.offerKey, u.take, u.take, u.reserve, u.reserve, u.free, u.remove}
		})
	}, sim.WithFaults())
}

// Attempts count claims that were handed over, and not those that were given up, if no session is
// lost and no claim is ended by force.
func TestSimQueueAttempts(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		s := newQueueSim(w, queue.WithRetryDelay(func(int) time.Duration { return w.Timeout / 16 }))
		s.fill(1 + w.Rand.IntN(4))
		s.work(2+w.Rand.IntN(2), func(u *queueUser) []verb {
			return []verb{u.offer, u.reserve, u.reserve, u.reserve, u.tryReserve, u.consume, u.consume}
		})
		w.Check(func() error {
			if s.changed(s.Alive()...) {
				return nil
			}
			return s.history.exactAttempts()
		})
	}, sim.WithFaults(sim.Slow, sim.Lag, sim.LoseReply, sim.LoseReply, sim.Drop, sim.CutTwice))
}

// Consumers that ask all the time do not leave an entry for long while they take later ones.
func TestSimQueueOvertaking(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		s := newQueueSim(w)
		s.fill(20 + w.Rand.IntN(100))
		s.pause, s.rounds = w.Timeout/16, 100
		s.work(2+w.Rand.IntN(3), func(u *queueUser) []verb {
			if u.consumes && u.first {
				return []verb{u.offer, u.offer, u.offerAll, u.offerAfter}
			}
			return []verb{u.poll, u.poll, u.poll, u.poll, u.poll, u.poll, u.pollN}
		})
		w.Check(func() error {
			longest, what := s.history.overtaken()
			if longest > w.Timeout/3+w.Timeout/8 {
				return fmt.Errorf("for %v of %v: %s", longest, w.Timeout, what)
			}
			return nil
		})
	}, sim.WithFaults())
}

// A queueSim is a simulation of a queue.
type queueSim struct {
	*sim.World
	history    *deliveries
	opts       []queue.Option
	mortal     bool // processes can die
	inPlace    bool // entries that are given back come back in their place
	priorities bool
	dead       *queue.Queue     // of the operator; nil if there is none
	attempts   int              // before an entry goes there
	wakes      bool             // calls that wait are woken soon
	most       int              // entries; 0 if there is no bound
	rounds     int              // of each goroutine, at most
	pause      time.Duration    // between them, at most; 0: up to a session timeout
	sessions   map[string]int64 // the first ones, by client
	moved      atomic.Int64     // entries that got a name which no consumer has watched
}

func newQueueSim(w *sim.World, opts ...queue.Option) *queueSim {
	return &queueSim{World: w, history: newDeliveries(w), opts: opts, rounds: 8, sessions: make(map[string]int64)}
}

// drawPriorities lets half of the queues have priorities.
func (s *queueSim) drawPriorities() {
	if s.Rand.IntN(2) == 0 {
		s.priorities = true
		s.opts = append(s.opts, queue.WithPriorities())
	}
}

// changed reports whether a client has lost a session.
func (s *queueSim) changed(clients ...*sim.Client) bool {
	return slices.ContainsFunc(clients, func(c *sim.Client) bool {
		session, err := c.Session(context.Background())
		return err != nil || session.ID() != s.sessions[c.Name]
	})
}

// checkQueue checks in the end that entries came in order. A session that was lost counts as a
// consumer until the server has ended it, and then some entries can be overtaken.
func (s *queueSim) checkQueue() {
	s.Check(func() error {
		overtakes := 0
		if s.changed(s.Alive()[0]) {
			overtakes = 8 + s.history.failed
		}
		return s.history.isQueue(overtakes)
	})
}

// watchesEach are the watches that a session keeps: on the register, twice, and on the number of
// the next entry. Numbers that went to entries of another name stay watched, too.
const watchesEach = 3

// A verb is a step of a simulation.
type verb = func(context.Context) error

// A queueUser is a goroutine of a client. Some share a Queue.
type queueUser struct {
	*queueSim
	*sim.Client
	name     string
	consumes bool // its client is the first
	first    bool // goroutine of its client
	rand     *rand.Rand
	queue    *queue.Queue
	dead     *queue.Queue
	made     int
	takes    *takes // of its client
}

// takes counts the entries that the Takes and Polls of a client ask for, and those of the calls
// that have ended.
type takes struct{ begun, ended atomic.Int64 }

// begin begins a call for n entries. The function returns how many entries other calls can have
// been about to take since then, which count as gone.
func (t *takes) begin(n int) (others func() int) {
	before := t.ended.Load() + int64(n)
	t.begun.Add(int64(n))
	return func() int { return int(t.begun.Load() - before) }
}

// work makes n clients, with some goroutines each that draw from their verbs.
func (s *queueSim) work(n int, verbs func(*queueUser) []verb) {
	s.Operator()
	begin := func(c *sim.Client) {
		session, err := c.Session(context.Background())
		if err != nil {
			s.Fatal(err)
		}
		if s.sessions[c.Name] == 0 {
			s.sessions[c.Name] = session.ID()
		}
		var shared *queueUser
		takes := new(takes)
		for i := range 1 + c.Rand.IntN(3) {
			u := &queueUser{
				queueSim: s, Client: c, takes: takes, consumes: c.Name == "client 1", first: i == 0,
				name: fmt.Sprintf("%s.%d in session %d", c.Name, i, session.ID()), rand: rand.New(rand.NewPCG(c.Rand.Uint64(), 0)),
			}
			if shared == nil || c.Rand.IntN(2) == 0 {
				opts := s.opts
				if s.dead != nil {
					u.dead = queue.New(c.Client, s.Path+"-dead")
					opts = append(slices.Clone(opts), queue.WithDeadLetter(u.dead, s.attempts))
				}
				u.queue = queue.New(c.Client, s.Path, opts...)
				shared = u
			} else {
				u.queue, u.dead = shared.queue, shared.dead
			}
			c.Go(func(ctx context.Context) error { return u.repeat(ctx, verbs(u)) })
		}
	}
	if s.mortal {
		s.Processes(n, begin)
	} else {
		for _, c := range s.Clients(n) {
			begin(c)
		}
	}

	s.Finally("the queue is emptied", func(ctx context.Context) error {
		if err := s.drain(ctx, queue.New(s.Operator(), s.Path, s.opts...)); err != nil {
			return err
		}
		if s.dead != nil {
			if err := s.drain(ctx, s.dead); err != nil {
				return err
			}
		}
		time.Sleep(2*time.Second + 2*s.Timeout) // receipts go when they are idle
		s.Watches = (1 + n) * (watchesEach + int(s.moved.Load()))
		return errors.Join(s.clean(s.Path), s.clean(s.Path+"-dead"))
	})
}

// repeat does one verb after another.
func (u *queueUser) repeat(ctx context.Context, verbs []verb) error {
	for range 2 + u.rand.IntN(u.rounds) {
		u.Sleep(ctx, u.upto(cmp.Or(u.pause, u.Timeout>>u.rand.IntN(8))))
		bound, cancel := context.WithTimeout(ctx, u.upto(4*u.Timeout))
		err := verbs[u.rand.IntN(len(verbs))](bound)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

func (u *queueUser) upto(most time.Duration) time.Duration {
	return time.Duration(u.rand.Int64N(max(int64(most), 1)))
}

func (u *queueUser) item() string {
	u.made++
	return fmt.Sprintf("%s's %d", u.name, u.made)
}

func uncertain(err error) bool {
	return errors.Is(err, protocol.ErrUncertain) || errors.Is(err, protocol.ErrLost)
}

// harmless returns err, or nil for errors that any call may return.
func harmless(err error) error {
	for _, ok := range []error{queue.ErrEmpty, queue.ErrFull, context.DeadlineExceeded, protocol.ErrUncertain, protocol.ErrLost} {
		if errors.Is(err, ok) {
			return nil
		}
	}
	return err
}

func (s *queueSim) fill(n int) {
	called := time.Now()
	var names []string
	var data [][]byte
	for i := range n {
		names = append(names, fmt.Sprintf("entry %d", i))
		data = append(data, []byte(names[i]))
	}
	ids, err := queue.New(s.Operator(), s.Path, s.opts...).OfferAll(context.Background(), data)
	if err != nil {
		s.Fatal(err)
	}
	s.history.put(called, err, 0, 100, ids, names...)
}

func (u *queueUser) put(called time.Time, err error, delay time.Duration, priority int, ids []string, names ...string) error {
	if err != nil && u.Dead() {
		err = protocol.ErrUncertain
	}
	u.history.put(called, err, delay, priority, ids, names...)
	u.Note("offers %s: %s %v", names, ids, err)
	known := errors.Is(err, protocol.ErrUncertain) || errors.Is(err, context.DeadlineExceeded)
	if errors.Is(err, protocol.ErrLost) && !known {
		return err // an offer holds nothing that could be lost
	}
	return harmless(err)
}

func (u *queueUser) offerOne(delay time.Duration, priority int, offer func(data []byte) (string, error)) error {
	called, name := time.Now(), u.item()
	id, err := offer([]byte(name))
	return u.put(called, err, delay, priority, []string{id}, name)
}

func (u *queueUser) offer(ctx context.Context) error {
	if u.priorities && u.rand.IntN(2) == 0 {
		priority := u.rand.IntN(200)
		return u.offerOne(0, priority, func(data []byte) (string, error) { return u.queue.OfferPriority(ctx, priority, data) })
	}
	return u.offerOne(0, 100, func(data []byte) (string, error) { return u.queue.Offer(ctx, data) })
}

func (u *queueUser) offerWait(ctx context.Context) error {
	return u.offerOne(0, 100, func(data []byte) (string, error) { return u.queue.OfferWait(ctx, data) })
}

func (u *queueUser) offerAfter(ctx context.Context) error {
	u.moved.Add(1)
	delay := 1 + u.upto(u.Timeout)
	return u.offerOne(delay, 100, func(data []byte) (string, error) { return u.queue.OfferAfter(ctx, delay, data) })
}

func (u *queueUser) offerAll(ctx context.Context) error {
	called, names := time.Now(), []string{u.item(), u.item()}
	ids, err := u.queue.OfferAll(ctx, [][]byte{[]byte(names[0]), []byte(names[1])})
	return u.put(called, err, 0, 100, ids, names...)
}

// offerKey offers with a key, again and again until that is settled, and perhaps once more.
func (u *queueUser) offerKey(ctx context.Context) error {
	called, name := time.Now(), u.item()
	id, err := u.queue.OfferKey(ctx, name, []byte(name))
	for range u.rand.IntN(4) {
		before := err
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), u.upto(2*u.Timeout))
		again, err2 := u.queue.OfferKey(bound, name, []byte(name))
		cancel()
		switch {
		case err2 == nil:
			id, err = max(id, again), nil
		case uncertain(err2) && before != nil:
			err = err2
		}
	}
	return u.put(called, err, 0, 100, []string{id}, name)
}

func (u *queueUser) take(ctx context.Context) error { return u.takeOne(ctx, "Take", u.queue.Take) }
func (u *queueUser) poll(ctx context.Context) error { return u.takeOne(ctx, "Poll", u.queue.Poll) }

func (u *queueUser) takeOne(ctx context.Context, what string, take func(context.Context) ([]byte, error)) error {
	called, others := time.Now(), u.takes.begin(1)
	defer u.takes.ended.Add(1)
	data, err := take(ctx)
	return u.out(what, called, others, [][]byte{data}, err)
}

func (u *queueUser) pollN(ctx context.Context) error {
	n := 1 + u.rand.IntN(4)
	called, others := time.Now(), u.takes.begin(n)
	defer u.takes.ended.Add(int64(n))
	data, err := u.queue.PollN(ctx, n)
	return u.out("PollN", called, others, data, err)
}

func (u *queueUser) out(what string, called time.Time, others func() int, data [][]byte, err error) error {
	u.history.mu.Lock()
	u.history.asked = time.Now()
	u.history.mu.Unlock()
	var unsure *queue.UncertainError
	if errors.As(err, &unsure) {
		data = unsure.Data
	}
	var names []string
	for _, d := range data {
		names = append(names, string(d))
	}
	if err == nil || unsure != nil {
		u.history.took(called, err, names...)
	}
	u.Note("%s: %q %v", what, names, err)
	switch {
	case errors.Is(err, queue.ErrEmpty):
		return u.nothing(what, called, others())
	case err == nil:
		return nil
	}
	u.history.reservedUnknown(called)
	// A call that waits is woken within an eighth of the session timeout.
	if soon := time.Now().Add(-u.Timeout / 8); u.wakes && what == "Take" && errors.Is(err, context.DeadlineExceeded) && called.Before(soon) {
		return u.nothing(what, soon, others())
	}
	return harmless(err)
}

// takeNewest is a bug.
func (u *queueUser) takeNewest(ctx context.Context) error {
	called, last := time.Now(), ""
	for i, err := range u.queue.List(ctx) {
		if err == nil && i.Holder == 0 && i.Due.IsZero() {
			last = i.ID
		}
	}
	session, err := u.Session(ctx)
	if err != nil || last == "" {
		return nil
	}
	data, _, err := session.Conn().Get(u.queueSim.Path + "/" + last)
	if err == nil && session.Conn().Delete(u.queueSim.Path+"/"+last, -1) == nil {
		u.history.took(called, nil, string(data))
	}
	return nil
}

func (u *queueUser) reserve(ctx context.Context) error { return u.reserveWith(ctx, u.queue.Reserve) }
func (u *queueUser) tryReserve(ctx context.Context) error {
	return u.reserveWith(ctx, u.queue.TryReserve)
}

func (u *queueUser) reserveWith(ctx context.Context, reserve func(context.Context) (*queue.Item, error)) error {
	session, err := u.Session(ctx)
	if err != nil {
		return harmless(err)
	}
	called, others := time.Now(), u.takes.begin(0)
	it, err := reserve(ctx)
	switch {
	case err == nil:
		return u.hold(ctx, called, it)
	case errors.Is(err, queue.ErrEmpty) && session.Err() == nil:
		return u.nothing("TryReserve", called, others())
	default: // an attempt may have reserved an entry
		u.history.reservedUnknown(called)
	}
	return harmless(err)
}

// hold keeps an item for a while and settles it.
func (u *queueUser) hold(ctx context.Context, called time.Time, it *queue.Item) error {
	name := string(it.Data())
	turn := u.holder(name).Begin(u.Client, called, it)
	touched := u.history.reserved(called, name, it.Token(), it.Attempt())
	most := []time.Duration{u.Timeout / 20, u.Timeout / 20, u.Timeout, 3 * u.Timeout}
	turn.Keep(u.upto(most[u.rand.IntN(len(most))])) // some outlast a session

	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*u.Timeout)
	defer cancel()
	if u.rand.IntN(3) > 0 {
		err := it.Ack(bound)
		turn.End(err)
		return u.acked(name, err)
	}

	var opts []queue.NackOption
	var delay time.Duration
	switch way := u.rand.IntN(3); {
	case way == 0 && !u.inPlace:
		delay = u.upto(u.Timeout)
		opts = append(opts, queue.After(delay))
	case way == 1 && !u.inPlace:
		opts = append(opts, queue.AtTail())
	}
	u.moved.Add(int64(len(opts)))
	err := it.Nack(bound, opts...)
	u.Note("Nack %s: %v", name, err)
	turn.End(err)
	if err == nil && u.dead == nil && u.most == 0 {
		u.history.released(touched, delay+time.Millisecond)
	}
	return harmless(err)
}

// acked notes the result of an Ack. Without a result it is unknown.
func (u *queueUser) acked(name string, err error) error {
	u.Note("Ack %s: %v", name, err)
	if err != nil && (u.Dead() || errors.Is(err, context.DeadlineExceeded)) {
		err = fmt.Errorf("%w: %w", protocol.ErrUncertain, err)
	}
	if err == nil || errors.Is(err, protocol.ErrUncertain) {
		u.history.acked(name, err)
	}
	return harmless(err)
}

func (u *queueUser) holder(name string) *sim.Exclusive {
	u.history.mu.Lock()
	defer u.history.mu.Unlock()
	e := u.history.entry(name)
	if e.held == nil {
		e.held = u.Exclusive(name)
	}
	return e.held
}

// consume lets some workers work for a while.
func (u *queueUser) consume(ctx context.Context) error {
	called := time.Now()
	acked := make(chan *queue.Item, 1000)
	seed := u.rand.Uint64()
	grace := time.Duration(u.rand.IntN(2)) * u.Timeout / 16
	err := u.queue.Consume(ctx, 1+u.rand.IntN(3), func(ctx context.Context, it *queue.Item) error {
		r := rand.New(rand.NewPCG(seed, uint64(it.Token())))
		name := string(it.Data())
		turn := u.holder(name).Begin(u.Client, called, it)
		u.history.reserved(called, name, it.Token(), it.Attempt())
		turn.Keep(time.Duration(r.Int64N(int64(u.Timeout / 8))))
		turn.End(nil)
		if r.IntN(4) > 0 {
			acked <- it
			return nil
		}
		u.moved.Add(1)
		if ctx.Err() != nil {
			u.history.unfinished(name, it.Token())
		}
		return errors.New("fails")
	}, queue.WithGrace(grace))
	u.history.reservedUnknown(called)
	close(acked)
	for it := range acked {
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*u.Timeout)
		err := it.Ack(bound)
		cancel()
		if err := u.acked(string(it.Data()), err); err != nil {
			return fmt.Errorf("acknowledged again: %w", err)
		}
	}
	return harmless(err)
}

func (u *queueUser) list(ctx context.Context) error {
	called := time.Now()
	var ids []string
	for i, err := range u.queue.List(ctx) {
		if err != nil {
			return harmless(err)
		}
		if slices.Contains(ids, i.ID) {
			return fmt.Errorf("List has %s twice", i.ID)
		}
		ids = append(ids, i.ID)
	}
	for _, id := range u.steady(called) {
		if !slices.Contains(ids, id) {
			return fmt.Errorf("List does not have %s, which was there since before: %s", id, ids)
		}
	}
	return nil
}

func (u *queueUser) remove(ctx context.Context) error {
	called := time.Now()
	name, err := u.operate(ctx, "Remove", u.queue.Remove)
	if name == "" || errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	u.history.took(called, protocol.ErrUncertain, name) // it may have been taken before the second attempt
	return harmless(err)
}

func (u *queueUser) free(ctx context.Context) error {
	_, err := u.operate(ctx, "Free", u.queue.Free)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return harmless(err)
}

// operate calls an operator's verb for an entry that has not moved, if there is one. The verb may
// end a claim by force.
func (u *queueUser) operate(ctx context.Context, what string, verb func(context.Context, string) error) (name string, err error) {
	u.history.mu.Lock()
	all := slices.DeleteFunc(u.history.sorted(), func(e *delivery) bool { return len(e.ids) != 1 || e.out })
	u.history.mu.Unlock()
	if len(all) == 0 {
		return "", nil
	}
	e := all[u.rand.IntN(len(all))]
	called := time.Now()
	err = verb(ctx, e.ids[0])
	u.Note("%s %s %s: %v", what, e.name, e.ids, err)
	to := time.Now()
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		to = forever
	}
	u.holder(e.name).Ended(called, to)
	return e.name, err
}

func (u *queueUser) drained(ctx context.Context) error {
	called := time.Now()
	bound, cancel := context.WithTimeout(ctx, u.upto(u.Timeout))
	defer cancel()
	err := u.queue.Drained(bound)
	if err == nil {
		u.history.empty("Drained", called)
	}
	return harmless(err)
}

// measure looks at the length of the queue again and again.
func (s *queueSim) measure() {
	s.Alive()[0].Go(func(ctx context.Context) error {
		session, err := s.Operator().Session(ctx)
		if err != nil {
			return err
		}
		for range 200 {
			children, _, err := session.Conn().Children(s.Path)
			returned, _, _ := session.Conn().Children(s.Path + "/zkrecipes/returned") // or moved, which is not bounded
			offered := slices.DeleteFunc(children, func(child string) bool {
				return !strings.HasPrefix(child, "qn-") || slices.Contains(returned, child)
			})
			if err == nil && len(offered) > s.most {
				return fmt.Errorf("the queue has %d entries, and may have %d", len(offered), s.most)
			}
			time.Sleep(s.Timeout / 16)
		}
		return nil
	})
}

// wipe deletes records now and then, as an operator does.
func (s *queueSim) wipe() {
	r := rand.New(rand.NewPCG(s.Rand.Uint64(), 0))
	s.Alive()[0].Go(func(ctx context.Context) error {
		session, err := s.Operator().Session(ctx)
		if err != nil {
			return err
		}
		for range 1 + r.IntN(4) {
			time.Sleep(time.Duration(r.Int64N(int64(2 * s.Timeout))))
			below := []string{"/zkrecipes/receipts", "/zkrecipes/waiting"}[r.IntN(2)]
			s.deleteAll(session.Conn(), s.Path+below, r.IntN(2) == 0)
			s.Alive()[0].Note("wipes %s", below)
		}
		return nil
	})
}

// deleteAll deletes what is below a node, and perhaps the node. It tries each once.
func (s *queueSim) deleteAll(c *zk.Conn, node string, whole bool) {
	children, _, _ := c.Children(node)
	for _, child := range children {
		s.deleteAll(c, node+"/"+child, true)
	}
	if whole {
		c.Delete(node, -1)
	}
}

// drain takes what is left when all other consumers have stopped.
func (s *queueSim) drain(ctx context.Context, q *queue.Queue) error {
	for {
		called := time.Now()
		data, err := q.Poll(ctx)
		switch {
		case err == nil:
			s.history.took(called, nil, string(data))
			if q == s.dead {
				s.history.entry(string(data)).buried = true
			}
			continue
		case !errors.Is(err, queue.ErrEmpty):
			return err
		}
		if err := s.nothing("the last Poll", called, 0); err != nil {
			return err
		}
		if n, err := q.Len(ctx); err != nil || n == 0 {
			return err
		}
		select { // a reservation is being released, or an entry is not due yet
		case <-time.After(s.Timeout / 8):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// nothing notes that a call has just said that there is nothing. It returns an error if entries
// were there since the call began, and other calls of the client were not about to take them.
func (s *queueSim) nothing(what string, called time.Time, others int) error {
	s.history.empty(what, called)
	if ids := s.steady(called); len(ids) > others {
		return fmt.Errorf("%s, from %s, says that there is nothing, and there is %s", what, s.history.show(since(called)), ids)
	}
	return nil
}

// steady returns the IDs of entries that nobody has had since then, and that were due. (An entry
// that comes back is a new node.) It asks the leader over a network without faults.
func (s *queueSim) steady(then time.Time) (ids []string) {
	session, err := s.Operator().Session(context.Background())
	if err != nil {
		return nil
	}
	c := session.Conn()
	look := func(dir string, parse func(child string) (id string, ok bool)) {
		children, _, _ := c.Children(dir)
		for _, child := range children {
			if id, ok := parse(child); ok {
				if there, stat, err := c.Exists(dir + "/" + child); err == nil && there && stat.Ctime < then.UnixMilli() {
					ids = append(ids, id)
				}
			}
		}
	}
	look(s.Path, func(child string) (string, bool) {
		e, ok := layout.ParseEntry(child, s.priorities)
		return e.ID, ok
	})
	buckets, _, _ := c.Children(s.Path + "/zkrecipes/delayed")
	for _, bucket := range buckets {
		look(s.Path+"/zkrecipes/delayed/"+bucket, func(child string) (string, bool) {
			due, id, ok := layout.ParseBeside(child)
			return id, ok && due < then.UnixMilli()
		})
	}
	return ids
}

// clean returns an error if something is left below a node other than records, or if something of a
// session is left among these.
func (s *queueSim) clean(path string) error {
	for line := range strings.Lines(s.Server.Dump(path)) {
		below, _ := strings.CutPrefix(line, path+"/")
		entry := below != line && !strings.HasPrefix(below, "zkrecipes")
		if entry || strings.Contains(line, ", session 0x") {
			return fmt.Errorf("left: %s", line)
		}
	}
	return nil
}
