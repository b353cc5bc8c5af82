package embedded_test

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zkrecipes/zkrecipes/internal/suite"
)

// A process that another goroutine starts has copies of all descriptors until it runs its program.
func TestCopiesOfItsDescriptorsDoNotKeepADirectoryLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, kept(dir))

	fds := suite.Got(filepath.Glob("/proc/self/fd/*"))(t)
	copied := false
	for _, fd := range fds {
		if target, _ := os.Readlink(fd); target != filepath.Join(dir, "lock") {
			continue
		}
		n := suite.Got(strconv.Atoi(filepath.Base(fd)))(t)
		dup := suite.Got(syscall.Dup(n))(t)
		t.Cleanup(func() { syscall.Close(dup) })
		copied = true
		break // the copy may have a number that the list has too
	}
	require.True(t, copied)

	require.NoError(t, s.Close())
	start(t, kept(dir))
}
