package queue

import (
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
)

var (
	// ErrEmpty is returned by calls that do not wait if there is nothing that they could have: the
	// queue has no entries, or all of them are reserved.
	ErrEmpty = line.NewBusy("empty")

	// ErrFull is returned by the offering verbs, except OfferWait, if the queue would get longer
	// than [WithMaxLength] allows.
	ErrFull = errors.New("full")

	// ErrTooManyItems is returned by Reserve and TryReserve if the session has as many items as it
	// may have: the paths of their claims come to 400,000 bytes, in all queues of the session. At a
	// path of 70 characters these are some 3,000 items. Acknowledge items, or give them back. A
	// server that had to end a session with many more could not start again.
	ErrTooManyItems = errors.New("too many items are reserved")
)

// An UncertainError says that it cannot be found out any more whether entries were offered, or
// removed, and has them. It wraps [protocol.ErrUncertain].
type UncertainError struct {
	IDs  []string // of entries that may have been removed
	Data [][]byte // of all entries in question
	Err  error    // why
}

func (e *UncertainError) Error() string { return e.Err.Error() }
func (e *UncertainError) Unwrap() error { return e.Err }

// uncertain returns err as one that wraps [protocol.ErrUncertain].
func uncertain(err error) error {
	if errors.Is(err, protocol.ErrUncertain) {
		return err
	}
	return fmt.Errorf("%w: %w", protocol.ErrUncertain, err)
}
