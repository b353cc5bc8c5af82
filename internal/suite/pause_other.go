//go:build !unix

package suite

import (
	"os"
	"testing"
)

// Pause skips the test: on this system no process can be stopped.
func Pause(t testing.TB, _ *os.Process) {
	t.Skip("no process can be stopped on this system")
}

// Resume does nothing, as no process is stopped.
func Resume(testing.TB, *os.Process) {}
