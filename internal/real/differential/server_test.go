package differential_test

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/transcript"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// attempts is how often in a row a difference or a fault must show. A real server that was already
// running deletes containers at any time, and its sessions expire if the machine is suspended.
const attempts = 3

// A pair is a real server and an embedded server to compare with it.
type pair struct {
	real    string // host and port
	version string // what the embedded server is told to behave like
	root    string // prefix of the roots of this pair's runs
	runs    int
}

func newPair(t *testing.T) *pair {
	t.Helper()
	hosts, chroot, _ := strings.Cut(realServer(t), "/")
	host, _, _ := strings.Cut(hosts, ",")
	if chroot != "" {
		chroot = "/" + chroot
	}

	version := recipestest.Attach(t, host).Version()
	config, ok := map[string]string{"3.8.0": "3.8", "3.9.3": "3.9"}[version]
	if !ok {
		t.Skipf("the embedded server behaves like ZooKeeper 3.8.0 or 3.9.3, not like %s", version)
	}
	t.Logf("ZooKeeper %s", version)
	return &pair{real: host, version: config, root: chroot + "/differential-" + strings.ToLower(rand.Text()[:8])}
}

// realServer returns the connect string of a real server. Unless it was already running, it deletes
// no containers.
func realServer(t *testing.T) string {
	t.Helper()
	if os.Getenv("ZKRECIPES_SERVERS") != "" {
		return ensemble.Real(t).ConnectString()
	}
	return ensemble.Start(t, 1, ensemble.WithJVMFlags("-Dznode.container.checkIntervalMs=86400000")).ConnectString()
}

// difference carries out the steps on both servers and returns their first difference, or the empty
// string.
func (p *pair) difference(steps []transcript.Step) (diff string, err error) {
	for range attempts {
		if diff, err = p.compareOnce(steps); diff == "" && err == nil {
			break
		}
	}
	return diff, err
}

func (p *pair) compareOnce(steps []transcript.Step) (string, error) {
	p.runs++
	root := fmt.Sprintf("%s-%d", p.root, p.runs)

	// The real server first: if it fails, there is nothing to compare with.
	want, err := transcript.Play(dial(p.real), root, steps)
	if err != nil {
		return "", fmt.Errorf("real server: %w\n%s", err, strings.Join(want, "\n"))
	}

	s, err := embedded.Start(embedded.Config{
		Version: p.version, TickTime: 500 * time.Millisecond, ContainerInterval: time.Hour,
	})
	if err != nil {
		return "", err
	}
	defer s.Close()

	got, err := transcript.Play(dial(s.ConnectString()), root, steps)
	if err != nil {
		return "", fmt.Errorf("embedded server: %w\n%s", err, strings.Join(got, "\n"))
	}

	return firstDifference(want, got), nil
}

func firstDifference(want, got []string) string {
	if slices.Equal(want, got) {
		return ""
	}
	// One transcript can be the beginning of the other.
	want, got = append(want, "end of transcript"), append(got, "end of transcript")
	i := 0
	for want[i] == got[i] {
		i++
	}
	return fmt.Sprintf("%s\nreal:     %s\nembedded: %s", strings.Join(want[:i], "\n"), want[i], got[i])
}

func dial(address string) func() (net.Conn, error) {
	return func() (net.Conn, error) { return net.Dial("tcp", address) }
}

// requireNoDifference fails the test if the servers differ.
func (p *pair) requireNoDifference(t *testing.T, steps []transcript.Step) {
	t.Helper()
	diff := suite.Got(p.difference(steps))(t)
	require.Empty(t, diff)
}
