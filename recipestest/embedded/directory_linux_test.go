package embedded_test

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process that another goroutine starts has copies of all descriptors until it runs its program.
func TestCopiesOfItsDescriptorsDoNotKeepADirectoryLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, kept(dir))

	fds, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	copied := false
	for _, fd := range fds {
		if target, _ := os.Readlink(fd); target != filepath.Join(dir, "lock") {
			continue
		}
		n, err := strconv.Atoi(filepath.Base(fd))
		require.NoError(t, err)
		dup, err := syscall.Dup(n)
		require.NoError(t, err)
		t.Cleanup(func() { syscall.Close(dup) })
		copied = true
		break // the copy may have a number that the list has too
	}
	require.True(t, copied)

	require.NoError(t, s.Close())
	start(t, kept(dir))
}
