package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-replica") { // the test binary starts copies of itself
		main()
		os.Exit(0)
	}
	sessionTimeout = 6 * time.Second // only killed or stopped replicas lose their session, and slow ones do not
	suite.Main(m)
}

func TestDemoOnTheEmbeddedServer(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, options{}))
	t.Log(out.String())
	requireFacts(t, out.String())
}

func TestDemoOnAnEnsemble(t *testing.T) {
	for name, servers := range map[string]func(*testing.T) string{
		"embedded": ensembleOf,
		"real":     func(t *testing.T) string { return ensemble.Real(t).ConnectString() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := servers(t)
			var out strings.Builder
			require.NoError(t, run(t.Context(), &out, options{servers: servers}))
			requireFacts(t, out.String())
			requireNothingLeft(t, servers)
		})
	}
}

// requireFacts checks the output for what the demo promises.
func requireFacts(t *testing.T, out string) {
	t.Helper()
	require.Contains(t, out, "Fin.")
	takeovers := regexp.MustCompile(`takes over +with token (\d+), (\S+) s later`).FindAllStringSubmatch(out, -1)
	require.Len(t, takeovers, 2)
	last := int64(0)
	for _, found := range takeovers {
		token, err := strconv.ParseInt(found[1], 10, 64)
		require.NoError(t, err)
		require.Greater(t, token, last)
		last = token
	}
	require.Regexp(t, `(?s)is stopped .*takes over .*"in time".*runs on .*the store +refuses that +token \d+ is older than \d+`, out)
}

func TestInterruptedDemoLeavesNothingBehind(t *testing.T) {
	for _, moment := range []string{"before it begins", "serves at", "leads", "is killed", "is stopped", "runs on"} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			servers := ensembleOf(t)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			out := writer(func(b []byte) (int, error) {
				if strings.Contains(string(b), moment) {
					interrupt()
				}
				return len(b), nil
			})

			if moment == "before it begins" {
				interrupt()
			}

			err := run(ctx, out, options{servers: servers})
			require.ErrorIs(t, err, errInterrupted)
			require.EqualError(t, err, errInterrupted.Error(), "no other error")
			requireNothingLeft(t, servers)
		})
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestReplicaEndsWithItsParent(t *testing.T) {
	t.Parallel()
	servers := ensembleOf(t)
	self, err := os.Executable()
	require.NoError(t, err)
	replica := exec.Command(self, "-replica", "orphan", "-servers", servers, "-path", "/orphan", "-store", "http://127.0.0.1:1")
	stdin, err := replica.StdinPipe()
	require.NoError(t, err)
	out, err := replica.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, replica.Start())
	_, err = out.Read(make([]byte, 1)) // it serves
	require.NoError(t, err)
	require.NoError(t, stdin.Close()) // as the kernel does when the parent dies
	require.NoError(t, replica.Wait())
}

func TestStoreRefusesOlderTokens(t *testing.T) {
	t.Parallel()
	s := &store{}
	for _, write := range []struct {
		query, value string
		status       int
		content      string
	}{
		{"?token=5", "a", http.StatusOK, "a"},
		{"?token=5", "b", http.StatusOK, "b"},
		{"?token=4", "c", http.StatusPreconditionFailed, "b"},
		{"", "d", http.StatusBadRequest, "b"},
		{"?token=6", "e", http.StatusOK, "e"},
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/"+write.query, strings.NewReader(write.value)))
		require.Equal(t, write.status, w.Code)
		require.Equal(t, write.content, s.content())
	}
}

func TestDemoFailsOnABadConnectString(t *testing.T) {
	t.Parallel()
	require.Error(t, run(t.Context(), io.Discard, options{servers: "zk1:port"}))
}

// ensembleOf starts a server that the demo must treat as a real ensemble.
func ensembleOf(t *testing.T) (connectString string) {
	t.Helper()
	server, err := embedded.Start(embedded.Config{TickTime: sessionTimeout / 4})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return server.ConnectString()
}

// requireNothingLeft checks that only the nodes of the start are left, and no process.
func requireNothingLeft(t *testing.T, servers string) {
	t.Helper()
	c, err := protocol.Connect(t.Context(), servers)
	require.NoError(t, err)
	defer c.Close()
	s, err := c.Session(t.Context())
	require.NoError(t, err)
	nodes, _, err := s.Conn().Children("/")
	require.NoError(t, err)
	require.Equal(t, []string{"zookeeper"}, nodes)
	ps, err := exec.Command("ps", "-e", "-o", "args").Output()
	require.NoError(t, err)
	require.NotContains(t, string(ps), "-servers "+servers)
}
