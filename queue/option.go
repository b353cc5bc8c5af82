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
// directory but the node of its records, whatever its name: neither what is reserved nor what is
// delayed. So an item that comes back may make the queue longer. Producers without a maximum length
// are not bound by it, and their entries are counted as they are seen.
//
// The bound is exact among the producers that set one while there is room for less than a thousand
// entries. There, a producer appends only while it is its turn, and each transaction checks that. It
// keeps the turn while it is alone. It gives the turn back after a quarter of a second without offers,
// or after some 20 ms if others wait for theirs. With more room producers do not wait for each other,
// and look at the length every 100 ms. If together they append more than there is room for in that
// time, the queue gets longer by as much.
//
// A turn costs three requests, and a look at the length one. A producer that has its turn, or that
// has looked, sends as many requests as without a bound. So a producer that offers less often than
// that pays for each offer: one more request far from the bound, and some six more near it.
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
// one transaction, with its data, its age and the reason, and gets a new place and a new ID. A
// maximum length of dead does not count. [Queue.Redrive] brings it back.
//
// [Item.Origin] of an item of dead, and [Info], say where it is from and why.
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
// has failed. The default doubles from 100 milliseconds, for the first attempt, up to a minute. With
// a delay of 0 or less the item goes to the tail of the queue. delay is called by several goroutines
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

// retryDelay is what [WithRetryDelay] says by default.
func retryDelay(attempt int) time.Duration {
	return min(100*time.Millisecond<<min(attempt-1, 10), time.Minute)
}
