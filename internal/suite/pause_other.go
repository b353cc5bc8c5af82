//go:build !unix

package suite

import (
	"os"
	"testing"
)

// Pause skips the test: no process can be made to stand still here.
func Pause(t testing.TB, _ *os.Process) {
	t.Skip("no process can be made to stand still on this system")
}

// Resume does nothing, as no process stands still.
func Resume(testing.TB, *os.Process) {}
