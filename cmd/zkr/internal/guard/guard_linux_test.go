package guard

import (
	"bufio"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// startShell runs a script, and returns a reader of what it prints.
func startShell(t *testing.T, script string, grace, trust time.Duration) (*Process, *bufio.Reader) {
	t.Helper()
	out, in, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { out.Close() })
	p, err := Start(Command{
		Path:   "/bin/sh",
		Args:   []string{"sh", "-c", script},
		Stdout: in,
		Grace:  grace,
	}, time.Now().Add(trust))
	require.NoError(t, err)
	require.NoError(t, in.Close())
	return p, bufio.NewReader(out)
}

// kinds waits for the end, and returns all events but Started.
func kinds(p *Process) (all []EventKind, status syscall.WaitStatus) {
	for e := range p.Events() {
		if e.Kind == Exited {
			status = e.Status
		}
		if e.Kind != Started {
			all = append(all, e.Kind)
		}
	}
	return all, status
}

// startReady is like startShell, for a script that prints a line once it is ready. It has trust for
// an hour.
func startReady(t *testing.T, script string, grace time.Duration) *Process {
	t.Helper()
	p, out := startShell(t, script, grace, time.Hour)
	_, err := out.ReadString('\n')
	require.NoError(t, err)
	return p
}

func TestCommandGetsSIGTERMAGraceBeforeTrustEnds(t *testing.T) {
	p := startReady(t, `trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done`, time.Minute)
	began := time.Now()
	p.Trust(began.Add(time.Minute + 2*time.Second))
	events, status := kinds(p)
	assert.Equal(t, []EventKind{Doubted, Exited, Gone}, events)
	assert.Equal(t, 9, status.ExitStatus())
	assert.GreaterOrEqual(t, time.Since(began), time.Second)
}

func TestCommandThatIgnoresSIGTERMIsKilledWhenTrustEnds(t *testing.T) {
	p := startReady(t, `trap '' TERM; echo ready; while :; do sleep 0.05; done`, time.Second)
	p.Trust(time.Now().Add(2 * time.Second))
	events, status := kinds(p)
	assert.Equal(t, []EventKind{Doubted, Exited, Gone}, events)
	assert.Equal(t, syscall.SIGKILL, status.Signal())
}

func TestTrustThatIsRenewedLetsTheCommandRun(t *testing.T) {
	p := startReady(t, `trap 'exit 9' TERM; echo ready; sleep 7`, time.Second)
	p.Trust(time.Now().Add(6 * time.Second))
	p.Trust(time.Now().Add(time.Hour))
	events, status := kinds(p)
	assert.Equal(t, []EventKind{Exited, Gone}, events)
	assert.Zero(t, status.ExitStatus())
}

func TestCommandIsNotBegunWithoutTrust(t *testing.T) {
	p, out := startShell(t, `echo begun`, time.Second, time.Second)
	events, _ := kinds(p)
	assert.Equal(t, []EventKind{Failed, Gone}, events)
	text, _ := out.ReadString('\n')
	assert.Empty(t, text)
}

func TestEndIsOneSIGTERMForEachProcess(t *testing.T) {
	p, out := startShell(t, `trap 'echo term' TERM; echo ready; while :; do sleep 0.05; done`, time.Minute, time.Hour)
	line, err := out.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)

	p.End()
	line, err = out.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "term\n", line)
	p.Kill()
	var rest strings.Builder
	_, err = out.WriteTo(&rest)
	require.NoError(t, err)
	assert.Empty(t, rest.String())
	events, status := kinds(p)
	assert.Equal(t, []EventKind{Exited, Gone}, events)
	assert.Equal(t, syscall.SIGKILL, status.Signal())
}
