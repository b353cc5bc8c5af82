package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// withoutForce leaves out the operator, who would end reservations.
var withoutForce = sim.WithoutFaults(sim.Deposed, sim.Deletion, sim.Uproot)

// One process at a time consumes what others offer, and has successors. What it had reserved when
// it died comes back in its place.
func TestSimQueueIsAQueue(t *testing.T) {
	sim.Run(t, inLine(false), withoutForce)
}

func TestSimFindsAQueueWhoseNewestEntryIsTaken(t *testing.T) {
	f := sim.Find(t, inLine(true), withoutForce, sim.WithSeeds(1000))
	require.NotNil(t, f)
	require.ErrorContains(t, f.Err, "is no queue")
	t.Log(f)
}

// A fifo is the history of a queue with one consumer.
type fifo struct {
	*sim.World
	bag      *sim.Bag
	mu       sync.Mutex // protects what follows
	names    map[string]rune
	held     map[string]*sim.Exclusive
	ops      []porcupine.Operation
	sessions map[int64]bool // of the consumer
	unknown  int            // calls that may have reserved an entry
}

// A fifoStep is an operation on an entry. The time at which it has an effect may be long after the
// call.
type fifoStep struct {
	verb     string
	entry    rune
	priority int
}

func (f *fifo) step(verb, name string, priority int, from, to time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.names[name] == 0 {
		f.names[name] = rune(len(f.names) + 1)
	}
	f.ops = append(f.ops, porcupine.Operation{
		Input: fifoStep{verb, f.names[name], priority}, Call: from.UnixNano(), Return: to.UnixNano(), ClientId: len(f.ops),
	})
}

func (f *fifo) holder(name string) *sim.Exclusive {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held[name] == nil {
		f.held[name] = f.Exclusive(name)
	}
	return f.held[name]
}

// inLine simulates producers and a consumer, which may take the newest entry now and then.
func inLine(newest bool) func(*sim.World) {
	return func(w *sim.World) {
		f := &fifo{
			World: w, bag: w.Bag("the queue"),
			names: make(map[string]rune), held: make(map[string]*sim.Exclusive), sessions: make(map[int64]bool),
		}
		w.Check(f.check)
		var opts []queue.Option
		priorities := w.Rand.IntN(2) == 0
		if priorities {
			opts = append(opts, queue.WithPriorities())
		}
		operator := queue.New(w.Operator(), w.Path, opts...)

		w.Processes(1, func(c *sim.Client) {
			q := queue.New(c.Client, w.Path, opts...)
			for range 1 + c.Rand.IntN(2) {
				seed := c.Rand.Uint64()
				c.Go(func(ctx context.Context) error { return f.consume(ctx, c, q, seed, newest) })
			}
		})
		w.Processes(1+w.Rand.IntN(2), func(c *sim.Client) {
			q := queue.New(c.Client, w.Path, opts...)
			c.Go(func(ctx context.Context) error {
				for i := range 2 + c.Rand.IntN(6) {
					c.Sleep(ctx, c.Upto(w.Timeout>>c.Rand.IntN(6)))
					if ctx.Err() != nil {
						return nil
					}
					session, err := c.Session(ctx)
					if err != nil {
						return err
					}
					name := fmt.Sprintf("%s's %d in session %d", c.Name, i, session.ID())
					if err := f.offer(ctx, c, q, name, priorities); err != nil {
						return err
					}
				}
				return nil
			})
		})

		w.Finally("the queue is emptied", func(ctx context.Context) error {
			for {
				data, err := operator.Poll(ctx)
				if err == nil {
					f.bag.Out(nil, string(data))
					continue
				} else if !errors.Is(err, queue.ErrEmpty) {
					return err
				}
				if n, err := operator.Len(ctx); err != nil || n == 0 {
					f.settle()
					return err
				}
				time.Sleep(w.Timeout / 8)
			}
		})
	}
}

// settle waits until idle receipts are gone, and allows for watches.
func (f *fifo) settle() {
	time.Sleep(2*time.Second + 2*f.Timeout)
	f.Watches = (1+len(f.Alive()))*watchesEach + len(f.ops)
}

func (f *fifo) offer(ctx context.Context, c *sim.Client, q *queue.Queue, name string, priorities bool) error {
	called, priority, verb := time.Now(), 100, "offer"
	var due time.Time
	var err error
	switch way := c.Rand.IntN(4); {
	case way == 0 && priorities:
		priority = c.Rand.IntN(200)
		_, err = q.OfferPriority(ctx, priority, []byte(name))
	case way == 1:
		delay := c.Upto(f.Timeout)
		verb = "offer later"
		_, err = q.OfferAfter(ctx, delay, []byte(name))
		due = called.Add(delay)
	default:
		_, err = q.Offer(ctx, []byte(name))
	}

	returned := time.Now()
	if err != nil && c.Dead() {
		err = protocol.ErrUncertain
	}
	if err != nil {
		returned = forever
	}
	c.Note("%s %s: %v", verb, name, err)
	f.bag.Put(err, name)
	if err == nil || uncertain(err) {
		f.step(verb, name, priority, called, returned)
		if verb != "offer" {
			f.step("is due", name, 0, latest(called, due), forever)
		}
	}
	return harmless(err)
}

func (f *fifo) consume(ctx context.Context, c *sim.Client, q *queue.Queue, seed uint64, newest bool) error {
	u := &queueUser{rand: newRand(seed)}
	for end := f.Now() + 5*f.Timeout; f.Now() < end && ctx.Err() == nil; {
		c.Sleep(ctx, u.upto(f.Timeout>>u.rand.IntN(8)))
		session, err := recipe.SessionOf(ctx, c.Client)
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.sessions[session.ID()] = true
		f.mu.Unlock()

		if newest && u.rand.IntN(8) == 0 {
			f.takeNewest(ctx, q, session)
			continue
		}
		called := time.Now()
		it, err := q.TryReserve(ctx)
		switch {
		case errors.Is(err, queue.ErrEmpty):
			f.step("is empty", "", 0, called, time.Now())
		case err != nil:
			f.mu.Lock()
			f.unknown++
			f.mu.Unlock()
			if err := harmless(err); err != nil {
				return err
			}
		default:
			if err := f.settleItem(c, u, called, it); err != nil {
				return err
			}
		}
	}
	return nil
}

// settleItem keeps an item for a while, and acknowledges it or gives it back.
func (f *fifo) settleItem(c *sim.Client, u *queueUser, called time.Time, it *queue.Item) error {
	name := string(it.Data())
	f.bag.Seen(name)
	f.step("reserve", name, 0, called, time.Now())
	turn := f.holder(name).Begin(c, called, it)
	turn.Keep(u.upto(f.Timeout >> u.rand.IntN(6)))

	bound, cancel := context.WithTimeout(context.Background(), 4*f.Timeout)
	defer cancel()
	acks, at := u.rand.IntN(3) > 0, time.Now()
	settle, verb := func(ctx context.Context) error { return it.Ack(ctx) }, "acknowledge"
	if !acks {
		settle, verb = func(ctx context.Context) error { return it.Nack(ctx) }, "give back"
	}
	err := settle(bound)
	c.Note("%s %s: %v", verb, name, err)
	turn.End(err)
	if err != nil && (c.Dead() || errors.Is(err, context.DeadlineExceeded)) {
		err = fmt.Errorf("%w: %w", protocol.ErrUncertain, err)
	}

	switch {
	case err == nil:
		f.step(verb, name, 0, at, time.Now())
		if acks {
			f.bag.Out(nil, name)
		}
	case acks && errors.Is(err, protocol.ErrUncertain):
		f.step("may acknowledge", name, 0, called, forever)
		f.bag.Out(err, name)
	default: // it is lost, which may have been at any time since
		f.step("give back", name, 0, called, forever)
	}
	return harmless(err)
}

// takeNewest is the bug. It takes the newest entry, and says so to the history.
func (f *fifo) takeNewest(ctx context.Context, q *queue.Queue, s *recipe.Session) {
	called, last := time.Now(), ""
	for i, err := range q.List(ctx) {
		if err == nil && i.Holder == 0 && i.Due.IsZero() {
			last = i.ID
		}
	}
	data, _, err := s.Conn().Get(f.Path + "/" + last)
	if last == "" || err != nil {
		return
	}
	if err := s.Conn().Delete(f.Path+"/"+last, -1); err != nil {
		return
	}
	f.step("reserve", string(data), 0, called, time.Now())
	f.step("acknowledge", string(data), 0, called, time.Now())
	f.bag.Out(nil, string(data))
}

// relaxed is how many entries may be overtaken while a session that was lost still counts as a
// consumer.
const relaxed = 8

// check returns an error unless the history is that of a queue.
func (f *fifo) check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	overtakes := f.unknown
	if len(f.sessions) > 1 {
		overtakes += relaxed
	}
	if sim.Search(queueModel(overtakes, f.unknown == 0), f.ops) {
		return nil
	}
	return fmt.Errorf("with up to %d overtaken, this is no queue:%s", overtakes, f.show())
}

func (f *fifo) show() string {
	var b strings.Builder
	for _, o := range f.ops {
		s := o.Input.(fifoStep)
		fmt.Fprintf(&b, "\n%v to %v: %s %d", f.at(o.Call), f.at(o.Return), s.verb, s.entry)
		if s.priority > 0 {
			fmt.Fprintf(&b, " with priority %d", s.priority)
		}
	}
	return b.String()
}

func (f *fifo) at(nano int64) time.Duration { return time.Until(time.Unix(0, nano)) + f.Now() }

// An entry of the model has a state of one letter, its priority and its number.
const (
	free     = 'f'
	delayed  = 'd'
	reserved = 'r'
)

// entryLength is how many runes stand for an entry in the state of the model.
const entryLength = 3

// queueModel is a queue with priorities, from which the first free entry of any priority is
// reserved, or one of some next ones. One that was delayed goes to the tail when it is due. A
// consumer learns of entries with a better priority a little later, so those may be overtaken. If
// emptiness is known, nothing is free then.
func queueModel(overtakes int, empties bool) porcupine.Model {
	step := func(state, input any) []any {
		entries, s := []rune(state.(string)), input.(fifoStep)
		atTail := func(entries []rune, flag, priority, entry rune) []any {
			at := 0
			for at < len(entries) && entries[at+1] <= priority {
				at += entryLength
			}
			return []any{string(entries[:at]) + string([]rune{flag, priority, entry}) + string(entries[at:])}
		}
		switch s.verb {
		case "offer":
			return atTail(entries, free, rune(s.priority+1), s.entry)
		case "offer later":
			return atTail(entries, delayed, rune(s.priority+1), s.entry)
		}

		if s.verb == "is empty" {
			for i := 0; i < len(entries) && empties; i += entryLength {
				if entries[i] == free {
					return nil
				}
			}
			return []any{state}
		}
		at := 0
		for at < len(entries) && entries[at+2] != s.entry {
			at += entryLength
		}
		if at == len(entries) {
			return nil
		}

		turn := func(from, to rune) []any {
			if entries[at] != from {
				return nil
			}
			return []any{string(entries[:at]) + string(to) + string(entries[at+1:])}
		}
		gone := string(entries[:at]) + string(entries[at+entryLength:])
		switch s.verb {
		case "is due":
			if entries[at] != delayed {
				return nil
			}
			return atTail([]rune(gone), free, entries[at+1], s.entry)
		case "reserve":
			before := 0
			for i := 0; i < at; i += entryLength {
				if entries[i] == free && entries[i+1] == entries[at+1] {
					before++
				}
			}
			if before > overtakes {
				return nil
			}
			return turn(free, reserved)
		case "give back":
			return turn(reserved, free)
		case "acknowledge":
			if entries[at] == reserved {
				return []any{gone}
			}
			return nil
		}
		return append(turn(reserved, free), gone) // it may be acknowledged
	}
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{""} },
		Step: func(state, input, _ any) []any { return step(state, input) },
	}).ToModel()
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
