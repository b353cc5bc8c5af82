package protocol_test

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestMain(m *testing.M) {
	if servers := os.Getenv(holderEnv); servers == "" {
		suite.Main(m)
	} else if err := holderMain(servers); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// took is how long f takes.
func took(f func()) time.Duration {
	begin := time.Now()
	f()
	return time.Since(begin)
}

// connect is srv.Client for tests that need another connect string. The client is closed before the
// test's checks.
func connect(t testing.TB, connectString string, opts ...protocol.ConnectOption) *protocol.Client {
	t.Helper()
	c := suite.Got(protocol.Connect(suite.Lasting(t), connectString, opts...))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// eachWith runs a test on embedded servers with an option, and on real ones with that setting.
func eachWith(t *testing.T, setting string, opt recipestest.Option, test func(*testing.T, *recipestest.Server)) {
	t.Helper()
	t.Parallel()
	t.Run("embedded", func(t *testing.T) { suite.Bubble(t, test, opt) })
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		test(t, suite.RealWith(t, setting))
	})
}

// states records the states that a listener gets.
type states chan protocol.State

func (s states) option() protocol.ConnectOption {
	return protocol.WithStateListener(func(state protocol.State) { s <- state })
}

func (s states) require(t testing.TB, want ...protocol.State) {
	t.Helper()
	for _, state := range want {
		require.Equal(t, state, suite.Wait(t, s))
	}
}

// watchesOn returns the server's answer to the four-letter word wchs: how many connections watch
// how many paths.
func watchesOn(dial zk.Dialer, server string) (string, error) {
	conn, err := dial("tcp", server, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("wchs")); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// ofClient matches the stack of a goroutine that runs the client or zk.Conn.
var ofClient = regexp.MustCompile(`zkrecipes/(protocol|internal/session|internal/conn)\.|zk\.\(\*Conn\)`)

// ourGoroutines returns the stacks of the goroutines of this test's bubble that run the client or
// zk.Conn and are not about to end. Those with the same stack are one entry, which begins with
// their number.
func ourGoroutines(t *testing.T) (ours []string) {
	synctest.Wait()
	var profile strings.Builder
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&profile, 1))
	_, stacks, _ := strings.Cut(profile.String(), "\n")
	for stack := range strings.SplitSeq(stacks, "\n\n") {
		if strings.Contains(stack, `"recipestest":"`+t.Name()+"#") && ofClient.MatchString(stack) {
			ours = append(ours, stack)
		}
	}
	return ours
}
