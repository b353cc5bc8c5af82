package protocol_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// holdMany holds n locks below root, which are watched when it returns.
func holdMany(t testing.TB, c *protocol.Client, link *recipestest.Link, root string, n int) []*protocol.Grant {
	t.Helper()
	watched := link.Answered(recipestest.OpGetData, link.Count(recipestest.OpGetData)+n)
	grants := make([]*protocol.Grant, n)
	var group suite.Group
	for first := range 16 {
		group.Go(func() (err error) {
			for i := first; i < n && err == nil; i += 16 {
				grants[i], err = lineAt(c, lockAt(root, i)).Enter(lasting(t), request)
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
	wait(t, watched)
	suite.Settle() // the last answers may be on their way to the client
	return grants
}

func lockAt(root string, i int) string { return fmt.Sprintf("%s/%d", root, i) }

// breakOne deletes the node of one of the locks below root, whose holder must hear of that.
func breakOne(t testing.TB, other *protocol.Client, root string, grants []*protocol.Grant, i int) {
	t.Helper()
	require.NoError(t, grants[i].Err())
	require.NoError(t, lineAt(other, lockAt(root, i)).Break(lasting(t), grants[i].Node()))
	wait(t, grants[i].Done())
	require.ErrorIs(t, grants[i].Err(), protocol.ErrLost)
}

func TestLeasesTakeNoGoroutines(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		holdMany(t, c, link, root+"/first", 1)
		synctest.Wait()
		before := ourGoroutines()

		grants := holdMany(t, c, link, root+"/others", 1000)

		synctest.Wait()
		require.Len(t, ourGoroutines(), len(before))
		for _, g := range grants {
			require.NoError(t, g.Err())
		}
		suite.Close(t, c)
	})
}

// TestReconnectKeepsManyLeases has other clients delete the nodes of some while the holder is away.
func TestReconnectKeepsManyLeases(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		const n, broken = 2000, 20
		root, link := srv.Root(t), srv.Link(t)
		c, other := link.Client(t), srv.Client(t)
		grants := holdMany(t, c, link, root, n)
		reads := link.Count(recipestest.OpGetData) + link.Count(recipestest.OpExists)

		link.Cut()
		for i := range broken {
			require.NoError(t, lineAt(other, lockAt(root, i)).Break(lasting(t), grants[i].Node()))
		}
		link.Heal()

		for _, g := range grants[:broken] {
			wait(t, g.Done())
			require.ErrorIs(t, g.Err(), protocol.ErrLost)
		}
		for _, g := range grants[broken:] {
			require.NoError(t, g.Err())
		}
		// Two for each node that is gone, and those that were under way.
		require.Less(t, link.Count(recipestest.OpGetData)+link.Count(recipestest.OpExists), reads+n/10)
		for i := broken; i < n; i += n / 10 {
			breakOne(t, other, root, grants, i)
		}
		suite.Close(t, c)
	})
}

// leasesEnv makes the test binary a process that measures what a lease takes of its memory, with
// this many at the server with this connect string, below this path.
const leasesEnv = "ZKRECIPES_TEST_LEASES"

// leasesMain holds locks, and prints how many bytes each takes once there is a line of input.
func leasesMain(spec string) int {
	if err := measureLeases(spec); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func measureLeases(spec string) error {
	var connectString, root string
	var n int
	if _, err := fmt.Sscan(spec, &connectString, &root, &n); err != nil {
		return err
	}
	c, err := protocol.Connect(context.Background(), connectString)
	if err != nil {
		return err
	}
	defer c.Close()

	grants := make([]*protocol.Grant, 1+n)
	hold := func(i int) (err error) {
		grants[i], err = lineAt(c, lockAt(root, i)).Enter(context.Background(), request)
		return err
	}
	if err := hold(0); err != nil {
		return err
	}
	before := memory()
	for i := range n {
		if err := hold(1 + i); err != nil {
			return err
		}
	}
	if _, err := fmt.Scanln(); err != nil {
		return err
	}

	fmt.Println((memory() - before) / n)
	for _, g := range grants {
		if err := g.Err(); err != nil {
			return err
		}
	}
	return nil
}

// memory is what is in use of heap and stacks.
func memory() int {
	runtime.GC()
	runtime.GC() // what the first one has found to be garbage is swept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// TestLeaseTakesLittleMemory measures a process that has the client and not the server.
func TestLeaseTakesLittleMemory(t *testing.T) {
	t.Parallel()
	const n = 5000
	srv := recipestest.Start(t)
	self, err := os.Executable()
	require.NoError(t, err)
	holder := exec.Command(self)
	holder.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", leasesEnv, srv.ConnectString(), srv.Root(t), n))
	stdin, err := holder.StdinPipe()
	require.NoError(t, err)
	stdout, err := holder.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	t.Cleanup(func() { holder.Process.Kill(); holder.Wait() })
	requireSoon(t, func() bool {
		return strings.Contains(watchesOnServer(t, srv), fmt.Sprintf("Total watches:%d", 1+n))
	}, "all are watched")

	_, err = fmt.Fprintln(stdin)
	require.NoError(t, err)
	answer, err := io.ReadAll(stdout)
	require.NoError(t, err)
	each, err := strconv.Atoi(strings.TrimSpace(string(answer)))
	require.NoError(t, err)
	t.Logf("%d bytes for each lease", each)
	require.Less(t, each, 2048)
	require.NoError(t, holder.Wait())
}
