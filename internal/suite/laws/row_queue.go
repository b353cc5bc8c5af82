package laws

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
)

const (
	entry   = `^/(qn|item|entry)-[^/]*$|^/zkrecipes/(held|delayed)/[^/]+/`
	claim   = `^/zkrecipes/held/[^/]+/`
	delayed = `^/zkrecipes/delayed/[^/]+/`
)

func queueOf(opts ...queue.Option) kind[*queue.Queue, *queue.Item] {
	return kind[*queue.Queue, *queue.Item]{
		own:  claim,
		make: func(s *Stage) *queue.Queue { return queue.New(s.Client, s.Path, opts...) },
		back: nacking(),
	}
}

var plain, byPriority = queueOf(), queueOf(queue.WithPriorities())

// A queueVerb has its results in variables of the row, if it needs them.
type queueVerb func(context.Context, *queue.Queue) error

// offering is a verb that appends entries to a queue.
func offering(offer queueVerb, opts ...queue.Option) func(*Stage) Verb {
	return func(s *Stage) Verb {
		q := queueOf(opts...).make(s)
		return Verb{
			Call:   call(func(ctx context.Context) error { return offer(ctx, q) }),
			Effect: func() int { return s.Count(entry) },
		}
	}
}

// taking is a verb that removes one of the entries that the other client has offered: one before
// each call, or one while it waits.
func taking(wait bool, take queueVerb, opts ...queue.Option) func(*Stage) Verb {
	return func(s *Stage) Verb {
		q, theirs, offered := queueOf(opts...).make(s), queueOf(opts...).make(s.other()), 0
		offer := func(context.Context) {
			must(theirs.Offer(context.Background(), fmt.Append(nil, offered)))
			offered++
		}
		v := Verb{
			Call:   call(func(ctx context.Context) error { return take(ctx, q) }),
			Effect: func() int { return offered - s.Count(entry) },
		}
		if v.Beside = offer; !wait {
			v.Before, v.Beside = func() { offer(nil) }, nil
		}
		return v
	}
}

// reserving is a verb that reserves an entry, of which there is one before the call.
func reserving(k kind[*queue.Queue, *queue.Item], verb func(*queue.Queue, context.Context) (*queue.Item, error)) func(*Stage) Verb {
	return changed(k.acquiring(verb), func(s *Stage, v *Verb) {
		v.Before = func() { stock(s, k) }
	})
}

// stock has the other client offer an entry unless there is one.
func stock(s *Stage, k kind[*queue.Queue, *queue.Item]) {
	if s.Count(entry) == 0 {
		must(k.make(s.other()).Offer(s.ctx, nil))
	}
}

// settling is a verb of an item that the client has reserved before the call.
func settling(settle func(*queue.Item, context.Context) error) func(*Stage) Verb {
	return func(s *Stage) Verb {
		var it *queue.Item
		v := taking(false, nil)(s)
		offer := v.Before
		v.Before = func() { offer(); it = must(plain.make(s).Reserve(s.ctx)) }
		v.Call, v.Loose = call(func(ctx context.Context) error { return settle(it, ctx) }), true
		return v
	}
}

// managing is a verb about an entry that the other client has offered before the call, and reserved
// if reserved is true.
func managing(reserved bool, verb func(q *queue.Queue, ctx context.Context, id string) error) func(*Stage) Verb {
	return func(s *Stage) Verb {
		q, theirs := plain.make(s), plain.make(s.other())
		var id string
		var it *queue.Item
		back := func() {
			if it != nil {
				it.Nack(context.Background())
			}
		}
		s.Cleanup(back)
		return Verb{
			Before: func() {
				back()
				drain(s, theirs)
				id = must(theirs.Offer(s.ctx, nil))
				if reserved {
					it = must(theirs.Reserve(s.ctx))
				}
			},
			Call:   call(func(ctx context.Context) error { return verb(q, ctx, id) }),
			Effect: func() int { return -s.Count(entry) },
			Loose:  true,
		}
	}
}

func ack(it *queue.Item, ctx context.Context) error { return it.Ack(ctx) }

func nacking(opts ...queue.NackOption) func(*queue.Item, context.Context) error {
	return func(it *queue.Item, ctx context.Context) error { return it.Nack(ctx, opts...) }
}

// roomy empties the queue before each call, and before what comes before it.
func roomy(verb func(*Stage) Verb) func(*Stage) Verb {
	return changed(verb, func(s *Stage, v *Verb) {
		before, theirs := v.Before, plain.make(s.other())
		v.Before = func() {
			drain(s, theirs)
			if before != nil {
				before()
			}
		}
	})
}

// drain removes all entries that are not reserved.
func drain(s *Stage, q *queue.Queue) {
	_, err := q.PollN(s.ctx, 100)
	check(calm(err))
}

// consuming is Consume until it has called a function once. What becomes of the item that the
// function has seen does not depend on ctx, so Consume does not report it.
func consuming(fails error) func(*Stage) Verb {
	return func(s *Stage) Verb {
		v := running(func(s *Stage) func(context.Context, func()) error {
			q := plain.make(s)
			return func(ctx context.Context, run func()) error {
				consuming, stop := stoppable(ctx)
				defer stop()
				return worked(ctx, q.Consume(consuming, 1, func(context.Context, *queue.Item) error { run(); stop(); return fails }))
			}
		})(s)
		theirs := plain.make(s.other())
		v.Before = func() { drain(s, theirs); must(theirs.Offer(s.ctx, nil)) }
		return v
	}
}

// item returns the first item of Items.
func item(q *queue.Queue, ctx context.Context) (it *queue.Item, err error) {
	err = first(q.Items(ctx), func(next *queue.Item) bool { it = next; return true })
	return it, err
}

// full makes it no error that the queue is full.
func full(offer queueVerb) queueVerb {
	return func(ctx context.Context, q *queue.Queue) error {
		if err := offer(ctx, q); !errors.Is(err, queue.ErrFull) {
			return err
		}
		return nil
	}
}

// taken makes it an error that a call has no data or has data with an error. If the outcome is
// uncertain, the call must have the data.
func taken(n int, err error) error {
	if errors.Is(err, protocol.ErrUncertain) {
		if n == 0 || !errors.As(err, new(*queue.UncertainError)) {
			return errors.New("uncertain, without data")
		}
		return err
	}
	return found(1, min(n, 1), err)
}

// adding is a verb that appends an entry, and removing one that removes one. Neither returns
// something with its error.
func adding(verb func(*queue.Queue, context.Context, []byte) (string, error)) queueVerb {
	return func(ctx context.Context, q *queue.Queue) error {
		id, err := verb(q, ctx, []byte("x"))
		return empty(len(id), err)
	}
}

func removing(verb func(*queue.Queue, context.Context) ([]byte, error)) queueVerb {
	return func(ctx context.Context, q *queue.Queue) error {
		data, err := verb(q, ctx)
		return taken(len(data), err)
	}
}

var (
	offer, offerWait = adding((*queue.Queue).Offer), adding((*queue.Queue).OfferWait)
	take, poll       = removing((*queue.Queue).Take), removing((*queue.Queue).Poll)
)

func offerAll(ctx context.Context, q *queue.Queue) error {
	ids, err := q.OfferAll(ctx, [][]byte{[]byte("x")})
	return empty(len(ids), err)
}

var queueRows = []Row{
	{"queue.Queue.Offer", offering(offer)},
	{"queue.Queue.Offer with priorities", offering(offer, queue.WithPriorities())},
	{"queue.Queue.Offer full", changed(offering(full(offer), queue.WithMaxLength(1)), func(s *Stage, v *Verb) {
		v.Before = func() { stock(s, plain) }
	})},
	{"queue.Queue.OfferAll", offering(offerAll)},
	{"queue.Queue.OfferAll bounded", roomy(offering(offerAll, queue.WithMaxLength(5)))},
	{"queue.Queue.OfferAfter", offering(func(ctx context.Context, q *queue.Queue) error {
		return only(q.OfferAfter(ctx, time.Hour, []byte("x")))
	})},
	{"queue.Queue.OfferPriority", offering(func(ctx context.Context, q *queue.Queue) error {
		return only(q.OfferPriority(ctx, 7, []byte("x")))
	}, queue.WithPriorities())},
	{"queue.Queue.OfferKey", func(s *Stage) Verb {
		key := 0
		v := offering(func(ctx context.Context, q *queue.Queue) error {
			return only(q.OfferKey(ctx, fmt.Sprint("key", key), []byte("x")))
		})(s)
		v.Before = func() { key++ }
		return v
	}},
	{"queue.Queue.OfferKey offered before", changed(offering(func(ctx context.Context, q *queue.Queue) error {
		return only(q.OfferKey(ctx, "key", nil))
	}), func(s *Stage, v *Verb) {
		v.Before = func() { must(plain.make(s.other()).OfferKey(s.ctx, "key", nil)) }
	})},
	{"queue.Queue.OfferWait", roomy(offering(offerWait, queue.WithMaxLength(5)))},
	{"queue.Queue.OfferWait full", func(s *Stage) Verb {
		bound := queue.WithMaxLength(1)
		theirs, taken := queueOf(bound).make(s.other()), 0
		v := offering(offerWait, bound)(s)
		v.Before = func() { // leave the queue full
			theirs.Offer(s.ctx, []byte("first"))
			taken = -s.Count(entry)
		}
		v.Beside = func(ctx context.Context) {
			if _, err := theirs.Poll(ctx); err == nil {
				taken++
			}
		}
		v.Effect = func() int { return s.Count(entry) + taken }
		return v
	}},
	{"queue.Queue.Take", taking(false, take)},
	{"queue.Queue.Take with priorities", taking(false, take, queue.WithPriorities())},
	{"queue.Queue.Take waiting", taking(true, take)},
	{"queue.Queue.Poll", taking(false, poll)},
	{"queue.Queue.Poll empty", offering(poll)},
	{"queue.Queue.PollN", taking(false, func(ctx context.Context, q *queue.Queue) error {
		data, err := q.PollN(ctx, 1)
		return taken(len(data), err)
	})},
	{"queue.Queue.Peek", taking(false, removing((*queue.Queue).Peek))},
	{"queue.Queue.Len", managing(false, func(q *queue.Queue, ctx context.Context, _ string) error {
		n, err := q.Len(ctx)
		return found(1, n, err)
	})},
	{"queue.Queue.List", managing(true, func(q *queue.Queue, ctx context.Context, id string) error {
		return first(q.List(ctx), func(i queue.Info) bool { return i.ID == id })
	})},
	{"queue.Queue.Remove", managing(false, (*queue.Queue).Remove)},
	{"queue.Queue.Remove reserved", managing(true, (*queue.Queue).Remove)},
	{"queue.Queue.Free", seen((*Stage).fewer, claim, managing(true, (*queue.Queue).Free))},
	{"queue.Queue.Drained", changed(offering(func(ctx context.Context, q *queue.Queue) error {
		return q.Drained(ctx)
	}), func(s *Stage, v *Verb) {
		v.Before = func() { must(plain.make(s.other()).Offer(s.ctx, nil)) }
		v.Beside = func(ctx context.Context) { plain.make(s.other()).PollN(ctx, 10) }
		v.Effect = nil
	})},
	{"queue.Queue.Redrive", seen((*Stage).Count, "^/item-[^/]*$", func(s *Stage) Verb {
		q, theirs := plain.make(s), plain.make(s.other())
		dead, letters := queue.New(s.Client, s.Path+"/dead"), queue.New(s.Other(), s.Path+"/dead")
		failing := queue.New(s.Other(), s.Path, queue.WithDeadLetter(letters, 1))
		return Verb{
			Before: func() {
				drain(s, theirs)
				must(failing.Offer(s.ctx, nil))
				check(must(failing.Reserve(s.ctx)).Nack(s.ctx))
			},
			Call: call(func(ctx context.Context) error {
				n, err := q.Redrive(ctx, dead, 1)
				return found(1, n, err)
			}),
		}
	})},
	{"queue.Queue.Reserve", reserving(plain, (*queue.Queue).Reserve)},
	{"queue.Queue.Reserve with priorities", reserving(byPriority, (*queue.Queue).Reserve)},
	{"queue.Queue.Reserve waiting", roomy(changed(plain.acquiring((*queue.Queue).Reserve), func(s *Stage, v *Verb) {
		q, theirs := plain.make(s), plain.make(s.other())
		v.Beside = func(ctx context.Context) { theirs.Offer(ctx, nil) }
		v.Turn = func(ctx context.Context, hold func(Hold)) error {
			it := must(q.Reserve(ctx))
			hold(it)
			return it.Ack(ctx)
		}
	}))},
	{"queue.Queue.Reserve past a dead letter", func(s *Stage) Verb {
		dead := queue.WithDeadLetter(queue.New(s.Client, s.Path+"/dead"), 2)
		v := queueOf(dead).acquiring((*queue.Queue).Reserve)(s)
		theirs := plain.make(s.other())
		v.Before = func() { // the first of two entries has failed twice
			drain(s, theirs)
			must(theirs.Offer(s.ctx, nil))
			for range 2 {
				check(must(theirs.Reserve(s.ctx)).Nack(s.ctx))
			}
			must(theirs.Offer(s.ctx, nil))
		}
		return v
	}},
	{"queue.Queue.TryReserve", reserving(plain, (*queue.Queue).TryReserve)},
	{"queue.Queue.TryReserve empty", plain.acquiring((*queue.Queue).TryReserve)},
	{"queue.Queue.Items", reserving(plain, item)},
	{"queue.Queue.Consume", consuming(nil)},
	{"queue.Queue.Consume of a function that fails", consuming(errEnough)},
	{"queue.Item.Ack", settling(ack)},
	{"queue.Item.Ack with a write", seen((*Stage).Count, "^/written-", func(s *Stage) Verb {
		return settling(func(it *queue.Item, ctx context.Context) error {
			return it.Ack(ctx, &zk.CreateRequest{Path: s.Path + "/written-" + it.ID(), Data: []byte("x")})
		})(s)
	})},
	{"queue.Item.Multi", seen((*Stage).Count, "^/written-", func(s *Stage) Verb {
		return plain.using(func(q *queue.Queue, ctx context.Context) (*queue.Item, error) {
			must(q.Offer(ctx, nil))
			return q.Reserve(ctx)
		}, func(it *queue.Item, ctx context.Context) error {
			return only(it.Multi(ctx, &zk.CreateRequest{Path: s.Path + "/written-", Flags: zk.FlagSequence}))
		})(s)
	})},
	{"queue.Item.Nack", seen((*Stage).fewerOwned, claim, settling(nacking()))},
	{"queue.Item.Nack after a delay", seen((*Stage).Count, delayed, roomy(settling(nacking(queue.After(time.Hour)))))},
	{"queue.Item.Nack to the tail", seen((*Stage).Count, "^/item-[^/]*$", roomy(settling(nacking(queue.AtTail()))))},
	{"queue.Item.Nack to the dead letters", func(s *Stage) Verb {
		dead := queue.WithDeadLetter(queue.New(s.Client, s.Path+"/dead"), 1)
		var it *queue.Item
		v := settling(func(_ *queue.Item, ctx context.Context) error { return it.Nack(ctx) })(s)
		q, theirs := queueOf(dead).make(s), plain.make(s.other())
		v.Before = func() { must(theirs.Offer(s.ctx, nil)); it = must(q.Reserve(s.ctx)) }
		v.Effect = func() int { return s.Count("^/dead/item-[^/]*$") }
		return v
	}},
}
