//go:build !unix

package suite

import (
	"os"
	"testing"
)

// Pause skips the test, because processes can't be stopped on this system.
func Pause(t testing.TB, _ *os.Process) {
	t.Skip("no process can be stopped on this system")
}

// Resume does nothing, because no process is stopped.
func Resume(testing.TB, *os.Process) {}
