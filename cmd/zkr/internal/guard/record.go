//go:build unix

package guard

import (
	"encoding/binary"
	"io"
)

// A record is what zkr and its guard tell each other. What the guard tells is an [Event].
type record Event

// A Kind is the kind of an Event.
type Kind int64

const (
	// From zkr to the guard.
	trusted Kind = iota + 1 // until then, by the clock: after that the command must be gone
	signal                  // send this signal to the command
	end                     // end the command, with grace
	kill                    // end it without

	// From the guard to zkr.

	Started // the command runs, as this process
	Failed  // the command could not be started, for this errno
	Stopped // the command was stopped by this signal, such as SIGTSTP
	Doubted // trust runs out, so the command is being ended
	Exited  // the command has ended, with this wait status. What it has left behind ends now
	Stuck   // this process does not end, though it was killed
	Gone    // nothing is left of the command
)

// size of a record in bytes. A pipe takes so few at once or not at all.
const size = 16

func (r record) writeTo(w io.Writer) error {
	var b [size]byte
	binary.NativeEndian.PutUint64(b[:], uint64(r.Kind))
	binary.NativeEndian.PutUint64(b[8:], uint64(r.Value))
	_, err := w.Write(b[:])
	return err
}

func readRecord(r io.Reader) (record, error) {
	var b [size]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return record{}, err
	}
	return record{
		Kind:  Kind(binary.NativeEndian.Uint64(b[:])),
		Value: int64(binary.NativeEndian.Uint64(b[8:])),
	}, nil
}
