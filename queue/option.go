package queue

import (
	"errors"
	"fmt"
	"time"
)

// An Option shapes a queue; give it to [New]. A nil option does nothing.
type Option func(*Queue) error

// WithMaxLength lets the offering verbs fail with [ErrFull] when the queue would have more than n
// entries otherwise. [Queue.OfferWait] waits instead. What is counted is all that is in the queue's
// directory but the node of its records, whatever its name. Producers without a maximum length are
// not bound by it, and their entries are counted as they are seen.
//
// The bound is exact among the producers that set one while there is room for less than a thousand
// entries. Each of their transactions checks that no other one has grown the queue meanwhile.
// Producers that collide there take turns of about 20 ms. With more room they do not wait for each
// other, and look at the length every 100 ms. If together they append more than there is room for
// in that time, the queue gets longer by as much.
//
// A producer that is alone sends as many requests as without a bound.
func WithMaxLength(n int) Option {
	return func(q *Queue) error {
		if n < 1 {
			return fmt.Errorf("a maximum length of %d is less than 1", n)
		}
		q.maxLength = n
		return nil
	}
}

// WithDeadLetter moves an item to another queue, dead, once it was reserved so many times and not
// acknowledged. That happens when the last of these attempts is given back with [Item.Nack]. If its
// consumer has died, it happens when the item would be delivered once more. The item goes there in
// one transaction, and gets a new place and a new ID. A maximum length of dead does not count.
//
// [Item.Origin] of an item of dead says where it is from and why. The ID says so too, so operators
// see it in a listing.
//
// If the dead letters cannot take an item, [Item.Nack] returns why, and the item returns to its
// place. A consumer that gets it once more sets it aside, delivers others, and tells the logger. It
// tries again from time to time.
//
// dead must belong to the same ensemble and chroot.
func WithDeadLetter(dead *Queue, attempts int) Option {
	return func(q *Queue) error {
		switch {
		case dead == nil:
			return errors.New("the dead-letter queue is nil")
		case dead.path == q.path:
			return errors.New("a queue cannot be its own dead-letter queue")
		case attempts < 1:
			return fmt.Errorf("dead letters after %d attempts: at least one is needed", attempts)
		}
		q.deadLetters, q.attempts = dead, attempts
		if err := dead.recipe.Validate(nil); err != nil {
			return fmt.Errorf("dead letters at %q: %w", dead.path, err)
		}
		return nil
	}
}

// WithPriorities orders entries by priority and then by age, in kazoo's layout: their nodes are
// called entry-<priority>-<sequence>. Entries that are not offered by [Queue.OfferPriority] get
// priority 100. An entry that was offered in the last tenth of a second may be overtaken by worse
// ones. All clients of a path should agree on the option: without it these entries are not seen.
func WithPriorities() Option {
	return func(q *Queue) error {
		q.priorities = true
		return nil
	}
}

// WithKeyRetention says for how long [Queue.OfferKey] remembers keys at least, by the servers'
// clocks. The default is an hour. All producers of a path should agree on it, as each deletes keys
// that are old by its own.
func WithKeyRetention(d time.Duration) Option {
	return func(q *Queue) error {
		if d < time.Second {
			return fmt.Errorf("keys remembered for %v: a second at least is needed", d)
		}
		q.retention = d
		return nil
	}
}

// WithRetryDelay sets for how long [Queue.Consume] puts off an item whose attempt of that number
// has failed. The default doubles from 100 milliseconds, for the first attempt, up to a minute. A
// delay of 0 or less moves the item to the tail of the queue. delay is called by several goroutines
// at the same time.
func WithRetryDelay(delay func(attempt int) time.Duration) Option {
	return func(q *Queue) error {
		if delay == nil {
			return errors.New("the function for retry delays is nil")
		}
		q.retryDelay = delay
		return nil
	}
}

// A NackOption says where an item goes when it is given back: give it to [Item.Nack]. A nil option
// does nothing. All of them create the entry anew, at the tail of the queue and with another ID, in
// the same transaction in which it is removed.
type NackOption func(*nack) error

// A nack says how an item is given back.
type nack struct {
	moves  bool   // to the tail
	due    int64  // when it may be delivered again, in milliseconds since 1970
	reason string // for the dead letters
}

// After puts the item off: it is not delivered again before d has passed, by this client's clock.
// Consumers compare that with their own clocks.
func After(d time.Duration) NackOption {
	return func(n *nack) error {
		if d < 0 {
			return fmt.Errorf("a delay of %v is negative", d)
		}
		n.moves = true
		n.due = time.Now().Add(d).Add(time.Millisecond - 1).UnixMilli() // not earlier
		return nil
	}
}

// AtTail moves the item behind all others that are in the queue.
func AtTail() NackOption {
	return func(n *nack) error {
		n.moves = true
		return nil
	}
}

// because adds the failure of a function to the reason.
func because(failure error) NackOption {
	return func(n *nack) error {
		n.reason += ": " + failure.Error()
		return nil
	}
}
