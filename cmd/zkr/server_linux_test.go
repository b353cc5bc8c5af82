package main

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

// A server must survive connections that take all descriptors, also when it has to replace its data
// file. Here a limit takes them, because the server soon closes connections that say nothing.
func TestServerOutlivesManyConnections(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, "--listen", "127.0.0.1:0", "--data", dir)
	c := dialServer(t, s.address)
	suite.Got(c.Create("/a", nil, 0, zk.WorldACL(zk.PermAll)))(t)
	write := func(from, to int32) {
		for i := from; i < to; i++ {
			require.NoError(t, suite.Err(c.Set("/a", make([]byte, 1_000_000), i)), "%s", &s.stderr)
		}
	}
	write(0, 66) // the file is replaced at 67 MB
	none := unix.Rlimit{Cur: 1, Max: 1}
	require.NoError(t, unix.Prlimit(s.cmd.Process.Pid, unix.RLIMIT_NOFILE, &none, nil))
	waits, err := net.Dial("tcp", s.address) // to be accepted
	require.NoError(t, err)
	defer waits.Close()
	write(66, 70)
	info := suite.Got(os.Stat(filepath.Join(dir, "data")))(t)
	require.Greater(t, info.Size(), int64(70_000_000), "there was a descriptor for another file")
	require.Equal(t, -1, s.end(t, syscall.SIGKILL))

	c = dialServer(t, serve(t, "--listen", "127.0.0.1:0", "--data", dir).address)
	_, stat, err := c.Get("/a")
	require.NoError(t, err)
	require.EqualValues(t, 70, stat.Version)
}
