package queue

import (
	"errors"
	"fmt"
	"time"
)

// A NackOption says where an item goes when it is given back: give it to [Item.Nack]. A nil option
// does nothing.
type NackOption func(*nack) error

// A nack says how an item is given back.
type nack struct {
	tail   bool   // to the tail
	due    int64  // when it may be delivered again, in milliseconds since 1970; 0: at once
	reason string // why
	cause  error  // likewise, for observers
}

// After delays the item: it is not delivered again before d has passed by this client's clock
// (which consumers compare with theirs). Then it goes back to its place.
func After(d time.Duration) NackOption {
	return func(n *nack) error {
		if d < 0 {
			return fmt.Errorf("a delay of %v is negative", d)
		}
		n.due = dueAfter(time.Now(), d)
		return nil
	}
}

// AtTail moves the item behind all other entries in the queue.
func AtTail() NackOption {
	return func(n *nack) error {
		n.tail = true
		return nil
	}
}

// Because says why the attempt has failed. [Info] and [Item.Reason] show up to 4 kB of its text,
// and the observer gets the error.
func Because(failure error) NackOption {
	return func(n *nack) error {
		if failure == nil {
			return errors.New("the reason of a failure is nil")
		}
		n.reason, n.cause = failure.Error(), failure
		return nil
	}
}
