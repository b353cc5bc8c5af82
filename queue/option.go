package queue

import (
	"errors"
	"fmt"
)

// An Option shapes a queue; give it to [New]. A nil option does nothing.
type Option func(*Queue) error

// WithMaxLength lets Offer and OfferAll fail with [ErrFull] when the queue would have more than n
// entries otherwise. The bound is exact among the producers that set one. Each of their
// transactions checks, by the version of the queue's own node, that the length has not grown
// meanwhile. Entries of other producers, and other nodes in the queue's directory, are counted as
// they are seen. Data that a client has put on the queue's node stays.
//
// The bound costs offers a little, and a round trip whenever another bounded producer was faster.
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
		return dead.recipe.Refused()
	}
}
