package queue

import (
	"errors"
	"fmt"
	"time"
)

// An Option configures a queue: give it to [New]. A nil option does nothing.
type Option func(*Queue) error

// WithMaxLength makes the offering verbs fail with [ErrFull] if the queue would get more than n
// entries. ([Queue.OfferWait] waits instead.) All children of the queue's node count (whatever
// their names) except the node of its records. Reserved and delayed entries don't count, so an item
// that comes back or is redriven can make the queue longer. Producers without a maximum length can
// exceed it. Their entries count when they are seen.
//
// With room for less than a thousand entries, the bound is exact among the producers that set it.
// There, producers take turns: each transaction checks that its producer has the turn. A producer
// keeps the turn while no other producer wants it. It ends the turn after a quarter of a second
// without offers (or after some 20 ms if others wait). With more room, producers don't wait for
// each other and look at the length every 100 ms. If they append more entries in that time than
// there is room for, the queue gets that much longer.
//
// A turn costs three requests and a look at the length costs one. While a producer has the turn (or
// has just looked), its offers cost as much as without a bound. A producer that offers less often
// pays for each offer: one more request far from the bound and some six more near it.
func WithMaxLength(n int) Option {
	return func(q *Queue) error {
		if n < 1 {
			return fmt.Errorf("a maximum length of %d is less than 1", n)
		}
		q.maxLength = n
		return nil
	}
}

// WithDeadLetter moves an item to another queue (dead) after the given number of attempts without
// an acknowledgement. The item moves when [Item.Nack] ends the last attempt. (If its consumer dies
// instead, the item moves when it would be delivered once more.) One transaction moves the item
// with its data, its age and the reason. It gets a new place and a new ID. A maximum length of dead
// doesn't count here. [Queue.Redrive] brings the item back.
//
// [Item.Origin] and [Info] say where a dead letter comes from and why.
//
// If the dead letters can't take an item, [Item.Nack] returns the reason and the item returns to
// its place. The next consumer that gets it sets it aside, delivers others and warns the logger. It
// tries again from time to time.
//
// dead must belong to the same ensemble and chroot. If its node is missing, the node gets the ACL
// of this queue's client.
func WithDeadLetter(dead *Queue, attempts int) Option {
	return func(q *Queue) error {
		if attempts < 1 {
			return fmt.Errorf("dead letters after %d attempts: at least one is needed", attempts)
		}
		q.deadLetters, q.attempts = dead, attempts
		return q.accepts(dead)
	}
}

// accepts returns an error unless dead can have dead letters of q.
func (q *Queue) accepts(dead *Queue) error {
	switch {
	case dead == nil:
		return errors.New("the dead-letter queue is nil")
	case dead.path == q.path:
		return errors.New("a queue cannot be its own dead-letter queue")
	}
	if err := dead.recipe.Validate(nil); err != nil {
		return fmt.Errorf("dead letters at %q: %w", dead.path, err)
	}
	return nil
}

// WithPriorities orders entries by priority, then by age. It uses kazoo's layout: nodes are called
// entry-<priority>-<sequence>. All entries get priority 100 unless they are offered by
// [Queue.OfferPriority]. A new entry can be overtaken by entries of worse priority for a tenth of a
// second (or longer, if a listing takes long). All clients of a path should use the option: without
// it, a client doesn't see these entries.
func WithPriorities() Option {
	return func(q *Queue) error {
		q.priorities = true
		return nil
	}
}

// WithKeyRetention sets how long [Queue.OfferKey] remembers keys at least, by the servers' clocks.
// The default is an hour. All producers of a path should use the same time, because each of them
// deletes keys that are older than its own.
func WithKeyRetention(d time.Duration) Option {
	return func(q *Queue) error {
		if d < time.Second {
			return fmt.Errorf("keys remembered for %v: a second at least is needed", d)
		}
		q.retention = d
		return nil
	}
}

// WithRetryDelay sets how long [Queue.Consume] puts off an item after a failed attempt, given the
// number of that attempt. By default the delay doubles from 100 milliseconds (for the first
// attempt) up to a minute. With a delay of 0 or less the item goes to the tail of the queue.
// Several goroutines call delay at the same time.
func WithRetryDelay(delay func(attempt int) time.Duration) Option {
	return func(q *Queue) error {
		if delay == nil {
			return errors.New("the function for retry delays is nil")
		}
		q.retryDelay = delay
		return nil
	}
}

// retryDelay is the default of [WithRetryDelay].
func retryDelay(attempt int) time.Duration {
	// A record that was made by hand can say anything.
	return min(100*time.Millisecond<<min(max(attempt, 1)-1, 10), time.Minute)
}
