//go:build unix

package guard

import (
	"encoding/binary"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// A record is a message between zkr and its guard. Records from the guard become an [Event].
type record Event

// A Kind is the kind of an Event.
type Kind int64

const (
	// From zkr to the guard.
	trusted Kind = iota + 1 // the command may run until this instant
	signal                  // send the command this signal
	end                     // end the command with grace
	kill                    // kill the command at once

	// From the guard to zkr.

	Started // the command runs and has this process ID
	Failed  // the command could not be started (errno)
	Stopped // this signal (SIGTSTP, say) stopped the command
	Doubted // trust ends, so the guard ends the command
	Exited  // the command has ended with this wait status; its background processes end now
	Stuck   // this process was killed but does not end
	Gone    // no descendant is left
)

// size is the length of a record in bytes. A pipe takes that few bytes as a whole or not at all.
const size = 16

func (r record) writeTo(w io.Writer) error { return binary.Write(w, binary.NativeEndian, r) }

func readRecord(from io.Reader) (r record, err error) {
	err = binary.Read(from, binary.NativeEndian, &r)
	return r, err
}

// An instant is a number of nanoseconds on a clock that all processes of a machine share. The clock
// goes on while the machine sleeps.
type instant = int64

func clock() instant {
	var t unix.Timespec
	if err := unix.ClockGettime(clockID, &t); err != nil {
		return time.Now().UnixNano()
	}
	return t.Nano()
}

// at returns t on that clock. t has two clocks of its own (monotonic and wall), and the clock that
// went further counts. If this process is paused in here, the instant is too early, which is the
// safe side.
func at(t time.Time) instant {
	began := clock()
	now := time.Now()
	return began + int64(min(t.Sub(now), t.Round(0).Sub(now.Round(0))))
}
