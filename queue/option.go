package queue

import (
	"errors"
	"fmt"
)

// An Option shapes a queue; give it to [New].
type Option func(*Queue) error

// WithMaxLength has Offer and OfferAll fail with [ErrFull] rather than let the queue have more than n entries. The bound
// is exact among those who set one: the version of the queue's own node says whether what they know of its length still
// holds. Entries of others, and strangers in its directory, are counted as they are seen. It costs offers a little, and
// a round trip whenever another bounded producer was faster; data that somebody has put on the queue's node stays.
func WithMaxLength(n int) Option {
	return func(q *Queue) error {
		if n < 1 {
			return fmt.Errorf("a maximum length of %d", n)
		}
		q.maxLength = n
		return nil
	}
}

// WithDeadLetter moves an item that was reserved so many times, and not acknowledged, to another queue: when the last of
// these attempts is given back with [Item.Nack], or, if its consumer has died, when the item would be delivered once
// more. It goes there in one transaction and gets a new place and a new ID; a maximum length of dead does not count.
// dead must belong to the same ensemble and chroot.
func WithDeadLetter(dead *Queue, attempts int) Option {
	return func(q *Queue) error {
		switch {
		case dead == nil:
			return errors.New("nil dead-letter queue")
		case dead.path == q.path:
			return errors.New("a queue cannot be its own dead-letter queue")
		case attempts < 1:
			return fmt.Errorf("dead letters after %d attempts", attempts)
		}
		q.dead, q.attempts = dead, attempts
		return dead.recipe.Refused()
	}
}
