//go:build unix

package suite

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Pause has a process stand still until Resume.
func Pause(t testing.TB, p *os.Process) { require.NoError(t, p.Signal(syscall.SIGSTOP)) }

// Resume has a process run on.
func Resume(t testing.TB, p *os.Process) { require.NoError(t, p.Signal(syscall.SIGCONT)) }
