package queue

import (
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
)

var (
	// ErrEmpty is returned by calls that do not wait if there is nothing for them: the queue has no
	// entries, or they are all reserved or delayed.
	ErrEmpty = line.NewBusy("empty")

	// ErrFull is returned by the offering verbs (except OfferWait) if the queue would get longer
	// than [WithMaxLength] allows.
	ErrFull = errors.New("full")
)

// An UncertainError says that the outcome of an offer or a removal can't be found out any more. It
// contains the entries and wraps [protocol.ErrUncertain].
type UncertainError struct {
	IDs  []string // of entries that may have been removed
	Data [][]byte // of all entries in question
	Err  error    // the reason
}

func (e *UncertainError) Error() string { return e.Err.Error() }
func (e *UncertainError) Unwrap() error { return e.Err }

// uncertain wraps err in [protocol.ErrUncertain].
func uncertain(err error) error {
	if errors.Is(err, protocol.ErrUncertain) {
		return err
	}
	return fmt.Errorf("%w: %w", protocol.ErrUncertain, err)
}
