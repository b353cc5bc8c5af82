//go:build unix

package suite

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Pause makes a process stand still until Resume.
func Pause(t testing.TB, p *os.Process) { require.NoError(t, p.Signal(syscall.SIGSTOP)) }

// Resume lets a process go on.
func Resume(t testing.TB, p *os.Process) { require.NoError(t, p.Signal(syscall.SIGCONT)) }
