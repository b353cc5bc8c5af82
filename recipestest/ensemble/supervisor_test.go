package ensemble

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/launch"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/reach"
)

// startsServerAndHangs makes a child process of this test binary start a server and block.
const startsServerAndHangs = "ZKRECIPES_TEST_CHILD"

func TestServerEndsWithAProcessThatIsKilled(t *testing.T) {
	if os.Getenv(startsServerAndHangs) == "1" {
		server, err := sharedServer()
		if err != nil {
			fmt.Println("error:", err)
			return
		}
		fmt.Println("address:", server.ConnectString())
		select {}
	}

	if _, err := findLauncher(); err != nil {
		unavailable(t, err)
	}

	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), startsServerAndHangs+"=1")
	child.Stderr = os.Stderr
	stdout := suite.Got(child.StdoutPipe())(t)
	require.NoError(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill() })

	line := suite.Got(bufio.NewReader(stdout).ReadString('\n'))(t)
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "address: ")
	require.True(t, ok, line)
	require.NoError(t, reach.Poll(t.Context(), func() error {
		_, err := reach.AskReport(addr)
		return err
	}))

	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())
	require.NoError(t, reach.Poll(t.Context(), func() error {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return nil
		}
		return errors.Join(errors.New("the server still listens"), conn.Close())
	}))
}

func TestSharedServerCostsNoGoroutine(t *testing.T) {
	_, err := sharedServer()
	if errors.Is(err, launch.ErrUnavailable) {
		unavailable(t, err)
	}
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), launch.Timeout)
	defer cancel()
	require.NoError(t, reach.Poll(ctx, func() error { return goleak.Find() }))
}

func TestServerThatCannotStartIsReportedWithItsLog(t *testing.T) {
	launcher, err := findLauncher()
	if err != nil {
		unavailable(t, err)
	}
	s := suite.Got(launch.Start(launcher, launch.Spec{ID: 1, Config: []string{"clientPort=nonsense"}}))(t)
	t.Cleanup(func() { require.NoError(t, s.End()) })
	require.NoError(t, reach.Poll(t.Context(), func() error {
		if !strings.Contains(s.Tail(), "nonsense") {
			return errors.New(s.Tail())
		}
		return nil
	}))
}
