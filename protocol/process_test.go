package protocol_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// holderEnv makes the test binary a process that holds something at a path: "connect string path".
const holderEnv = "ZKRECIPES_TEST_HOLDER"

// holderMain holds what it was told to, and for each line of its input says whether it still does.
func holderMain(spec string) int {
	var connectString, path string
	if _, err := fmt.Sscan(spec, &connectString, &path); err != nil {
		fmt.Println(err)
		return 1
	}
	c, err := protocol.Connect(context.Background(), connectString)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer c.Close()
	g, err := lineAt(c, path).Enter(context.Background(), request)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("held")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch err := g.Err(); {
		case err == nil:
			fmt.Println("held")
		case errors.Is(err, protocol.ErrLost):
			fmt.Println("lost")
		default:
			fmt.Println(err)
		}
	}
	return 0
}

// TestStoppedProcessSeesTheLossAtOnce stops a holder until the next one has what it held.
func TestStoppedProcessSeesTheLossAtOnce(t *testing.T) {
	suite.InRealTime(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		self, err := os.Executable()
		require.NoError(t, err)
		holder := exec.Command(self)
		holder.Env = append(os.Environ(), holderEnv+"="+srv.ConnectString()+" "+root)
		stdin, err := holder.StdinPipe()
		require.NoError(t, err)
		stdout, err := holder.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, holder.Start())
		t.Cleanup(func() { holder.Process.Kill(); holder.Wait() })
		answers := bufio.NewScanner(stdout)
		says := func(want string) {
			require.True(t, answers.Scan())
			require.Equal(t, want, answers.Text())
		}
		says("held")
		_, err = fmt.Fprintln(stdin)
		require.NoError(t, err)
		says("held")

		suite.Pause(t, holder.Process)
		g := hold(t, srv.Client(t), root) // the servers have expired the session
		_, err = fmt.Fprintln(stdin)
		require.NoError(t, err)
		suite.Resume(t, holder.Process)
		says("lost")
		require.NoError(t, g.Err())
		require.NoError(t, g.Release(lasting(t)))
		require.NoError(t, stdin.Close())
		require.NoError(t, holder.Wait())
	})
}
