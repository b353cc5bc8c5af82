//go:build unix

package guard

import (
	"encoding/binary"
	"io"
)

// A record is what zkr and its guard tell each other.
type record struct {
	kind  kind
	value int64
}

type kind int64

const (
	// From zkr to the guard.
	trusted kind = iota + 1 // until value, by the clock: after that the command must be gone
	signal                  // send this signal to the command
	end                     // end the command, with grace
	kill                    // end it without

	// From the guard to zkr.
	started // this process
	failed  // to start, for this errno
	stopped // by this signal
	doubted // trust runs out, so the command is being ended
	exited  // with this wait status
	stuck   // this process does not end
	gone    // all of them
)

// size of a record in bytes. A pipe takes so few at once or not at all.
const size = 16

func (r record) writeTo(w io.Writer) error {
	var b [size]byte
	binary.NativeEndian.PutUint64(b[:], uint64(r.kind))
	binary.NativeEndian.PutUint64(b[8:], uint64(r.value))
	_, err := w.Write(b[:])
	return err
}

func readRecord(r io.Reader) (record, error) {
	var b [size]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return record{}, err
	}
	return record{
		kind:  kind(binary.NativeEndian.Uint64(b[:])),
		value: int64(binary.NativeEndian.Uint64(b[8:])),
	}, nil
}
