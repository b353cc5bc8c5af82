package guard

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/zkrecipes/zkrecipes/internal/suite"
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
func kinds(p *Process) (all []Kind, status syscall.WaitStatus) {
	for e := range p.Events() {
		if e.Kind == Exited {
			status = syscall.WaitStatus(e.Value)
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
	suite.Got(out.ReadString('\n'))(t)
	return p
}

func TestCommandGetsSIGTERMAGraceBeforeTrustEnds(t *testing.T) {
	p := startReady(t, `trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done`, time.Minute)
	began := time.Now()
	p.Trust(began.Add(time.Minute + 2*time.Second))
	events, status := kinds(p)
	assert.Equal(t, []Kind{Doubted, Exited, Gone}, events)
	assert.Equal(t, 9, status.ExitStatus())
	assert.GreaterOrEqual(t, time.Since(began), time.Second)
}

func TestCommandThatIgnoresSIGTERMIsKilledWhenTrustEnds(t *testing.T) {
	p := startReady(t, `trap '' TERM; echo ready; while :; do sleep 0.05; done`, time.Second)
	p.Trust(time.Now().Add(2 * time.Second))
	events, status := kinds(p)
	assert.Equal(t, []Kind{Doubted, Exited, Gone}, events)
	assert.Equal(t, syscall.SIGKILL, status.Signal())
}

func TestTrustThatIsRenewedLetsTheCommandRun(t *testing.T) {
	p := startReady(t, `trap 'exit 9' TERM; echo ready; sleep 7`, time.Second)
	p.Trust(time.Now().Add(6 * time.Second))
	p.Trust(time.Now().Add(time.Hour))
	events, status := kinds(p)
	assert.Equal(t, []Kind{Exited, Gone}, events)
	assert.Zero(t, status.ExitStatus())
}

func TestCommandIsNotBegunWithoutTrust(t *testing.T) {
	p, out := startShell(t, `echo begun`, time.Second, time.Second)
	events, _ := kinds(p)
	assert.Equal(t, []Kind{Failed, Gone}, events)
	text, _ := out.ReadString('\n')
	assert.Empty(t, text)
}

func TestEndIsOneSIGTERMForEachProcess(t *testing.T) {
	p, out := startShell(t, `trap 'echo term' TERM; echo ready; while :; do sleep 0.05; done`, time.Minute, time.Hour)
	line := suite.Got(out.ReadString('\n'))(t)
	require.Equal(t, "ready\n", line)

	p.request(end, 0)
	line = suite.Got(out.ReadString('\n'))(t)
	require.Equal(t, "term\n", line)
	p.Kill()
	var rest strings.Builder
	suite.Got(out.WriteTo(&rest))(t)
	assert.Empty(t, rest.String())
	events, status := kinds(p)
	assert.Equal(t, []Kind{Exited, Gone}, events)
	assert.Equal(t, syscall.SIGKILL, status.Signal())
}

// chain is a script whose processes start the next one and end, over and over. It writes a byte for
// each.
const chain = `#!/bin/sh
printf x >>"$DIR/log"
%s "$0" &
`

func TestProcessThatForksAndEndsOverAndOverIsMet(t *testing.T) {
	for name, how := range map[string]string{"in the group": "", "in a session of its own": "setsid", "under another name": "exec setsid"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("DIR", dir)
			script := filepath.Join(dir, "chain")
			require.NoError(t, os.WriteFile(script, fmt.Appendf(nil, chain, how), 0o700))
			p := startReady(t, script+`; until [ $(wc -c <"$DIR/log") -gt 20 ]; do sleep 0.01; done; echo ready; sleep 1000`, time.Second)
			p.Kill()
			events, _ := kinds(p)
			assert.Equal(t, []Kind{Exited, Gone}, events)
			before := suite.Got(os.Stat(dir + "/log"))(t)
			time.Sleep(50 * time.Millisecond)
			after := suite.Got(os.Stat(dir + "/log"))(t)
			assert.Equal(t, before.Size(), after.Size(), "it goes on")
		})
	}
}

func TestGuardThatWasPausedActsOnTheNewestTrust(t *testing.T) {
	p := startReady(t, `trap 'exit 9' TERM; echo ready; sleep 1`, 10*time.Millisecond)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	require.NoError(t, unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)) // all its threads
	p.Trust(time.Now())                                                                                  // which has run out when it is read
	for range 20 {                                                                                       // zkr goes on renewing trust
		p.Trust(time.Now().Add(time.Hour))
	}
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
	events, status := kinds(p)
	assert.Equal(t, []Kind{Exited, Gone}, events)
	assert.Zero(t, status.ExitStatus())
}

func TestForeignProcIsRefused(t *testing.T) {
	require.NoError(t, Usable())
	cmd := exec.Command("unshare", "-pf", os.Args[0], "-test.run=^TestProcIsForeign$")
	cmd.Env = append(os.Environ(), "GUARD_TEST_FOREIGN=1")
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(out), "TestProcIsForeign") {
		t.Skipf("no namespaces here: %s", out)
	}
	require.NoError(t, err, string(out))
}

// TestProcIsForeign runs under the /proc of other processes.
func TestProcIsForeign(t *testing.T) {
	if os.Getenv("GUARD_TEST_FOREIGN") == "" {
		t.Skip("for TestForeignProcIsRefused")
	}
	require.ErrorContains(t, Usable(), "of other processes")
}

// ownGroup skips a test if no control group can be had here.
func ownGroup(t *testing.T) {
	t.Helper()
	c := newCgroup()
	if c == "" {
		t.Skip("no control group of our own here")
	}
	c.remove()
}

// foreign starts a process that is no descendant of p's guard, and moves it into p's control group.
func foreign(t *testing.T, p *Process) *Process {
	t.Helper()
	other := startReady(t, "echo ready; exec sleep 1000", time.Second)
	started := <-other.Events()
	require.Equal(t, Started, started.Kind)
	require.NoError(t, os.WriteFile(p.cgroup.file("procs"), fmt.Append(nil, started.Value), 0))
	return other
}

// SIGKILL of a control group reaches what no signal of ours reaches.
func TestControlGroupOfTheCommandIsKilled(t *testing.T) {
	ownGroup(t)
	for name, end := range map[string]func(*Process){"by the guard": (*Process).Kill, "by zkr": (*Process).Abandon} {
		t.Run(name, func(t *testing.T) {
			p := startReady(t, "echo ready; exec sleep 1000", time.Second)
			other := foreign(t, p)
			end(p)
			_, status := kinds(other)
			assert.Equal(t, syscall.SIGKILL, status.Signal())
			events, _ := kinds(p)
			assert.Equal(t, []Kind{Exited, Gone}, events)
			p.cgroup.remove() // the foreign process may have kept it
		})
	}
}

func TestControlGroupOfTheCommandIsRemoved(t *testing.T) {
	ownGroup(t)
	for name, end := range map[string]func(*Process){"by the guard": (*Process).Kill, "by zkr": (*Process).Abandon} {
		p := startReady(t, "echo ready; sleep 1000 & exec sleep 1000", time.Second)
		require.DirExists(t, string(p.cgroup))
		end(p)
		kinds(p)
		assert.NoDirExists(t, string(p.cgroup), name)
	}
}

func TestControlGroupOfAKilledZkrIsRemoved(t *testing.T) {
	ownGroup(t)
	dead := exec.Command("/bin/true")
	require.NoError(t, dead.Run())
	left := fmt.Sprintf("%s/zkr-%d-1", ownCgroup(), dead.Process.Pid)
	mine := fmt.Sprintf("%s/zkr-%d-1", ownCgroup(), os.Getpid())
	require.NoError(t, os.Mkdir(left, 0o700))
	require.NoError(t, os.Mkdir(mine, 0o700))
	newCgroup().remove()
	assert.NoDirExists(t, left)
	assert.DirExists(t, mine)
	require.NoError(t, syscall.Rmdir(mine))
}

func TestControlGroupOfAnOuterZkrIsNotOurs(t *testing.T) {
	if os.Getenv("GUARD_TEST_INNER") != "" {
		require.Empty(t, newCgroup())
		return
	}
	ownGroup(t)
	t.Setenv("GUARD_TEST_INNER", "1")
	p, _ := startShell(t, "exec "+os.Args[0]+" -test.run='^"+t.Name()+"$'", time.Second, time.Hour)
	_, status := kinds(p)
	assert.Zero(t, status)
}

func TestCommandStartsThoughAControlGroupRefusesIt(t *testing.T) {
	attr, pid := new(syscall.SysProcAttr), 0
	require.NoError(t, cgroup(t.TempDir()).start(attr, func() (err error) {
		pid, err = syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Sys: attr})
		return err
	}))
	suite.Got(syscall.Wait4(pid, nil, 0, nil))(t)
}
