package real_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/real/interop"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// A zkr makes processes of zkr, which have yet to be started, for some servers.
type zkr func(args ...string) *exec.Cmd

func buildZkr(t *testing.T, servers string) zkr {
	t.Helper()
	path := filepath.Join(t.TempDir(), "zkr")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/zkrecipes/zkrecipes/cmd/zkr").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Env = append(os.Environ(), "ZKR_SERVERS="+servers)
		cmd.Stderr = os.Stderr
		return cmd
	}
}

// status returns the exit status of a process, and what it has printed.
func status(t *testing.T, cmd *exec.Cmd) (int, string) {
	t.Helper()
	out, err := cmd.Output()
	if err != nil {
		require.ErrorAs(t, err, new(*exec.ExitError))
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func TestMemberOfAnEnsembleMayStopWhileACommandRuns(t *testing.T) {
	cluster := ensemble.Start(t, 3, ensemble.WithConfig("maxSessionTimeout=120000"))
	zkr, root := buildZkr(t, cluster.ConnectString()), cluster.Server(t).Root(t)
	cmd := zkr("lock", "--timeout", "2m", root+"/lock", "--",
		"sh", "-c", `trap 'exit 5' USR1; trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done`)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)

	// The member that zkr is connected to is among them.
	for _, m := range cluster.Members() {
		m.Stop()
		s, _ := status(t, zkr("barrier", "set", root)) // once the others serve
		require.Zero(t, s)
		m.Start()
		cluster.WaitHealthy()
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGUSR1))
	require.Error(t, cmd.Wait())
	assert.Equal(t, 5, cmd.ProcessState.ExitCode())
	s, _ := status(t, zkr("lock", root+"/lock", "--", "true"))
	assert.Zero(t, s)
}

type finding struct{ Check, Status, Found string }

// examine runs doctor, and returns its findings by the names of the checks.
func examine(t *testing.T, zkr zkr, args ...string) map[string]finding {
	t.Helper()
	_, out := status(t, zkr(append([]string{"doctor", "--json"}, args...)...))
	findings := make(map[string]finding)
	for line := range strings.Lines(out) {
		var f finding
		require.NoError(t, json.Unmarshal([]byte(line), &f))
		findings[f.Check] = f
	}
	return findings
}

func TestDoctorSaysHowManyMembersMayFail(t *testing.T) {
	cluster := ensemble.Start(t, 3)
	zkr := buildZkr(t, cluster.ConnectString())
	findings := examine(t, zkr)
	assert.Equal(t, "ok", findings["servers"].Status, findings["servers"])
	assert.Equal(t, "ok", findings["quorum"].Status, findings["quorum"])
	assert.Contains(t, findings["quorum"].Found, "3 of 3 voters seen up, 1 leader: 1 more may fail")
	assert.Equal(t, 3, strings.Count(findings["lag"].Found, "at most"), findings["lag"])

	down := cluster.Followers()[0]
	down.Stop()
	findings = examine(t, zkr)
	assert.Equal(t, "warn", findings["servers"].Status)
	assert.Contains(t, findings["servers"].Found, down.ConnectString()+" does not serve")
	assert.Equal(t, "warn", findings["quorum"].Status)
	assert.Contains(t, findings["quorum"].Found, "2 of 3 voters seen up, 1 leader: 0 more may fail")
	assert.Equal(t, 2, strings.Count(findings["lag"].Found, "at most"), findings["lag"])

	cluster.Followers()[0].Stop()
	findings = examine(t, zkr, "--wait", "2s")
	assert.Equal(t, "fail", findings["session"].Status)
}

// A place is what ps prints about a path.
type place struct {
	Recipe     string
	Contenders []struct{ State, Mode, Library, Orphan string }
	Queue      *struct {
		Length int
		Oldest *time.Time
	}
}

func ps(t *testing.T, zkr zkr, path string) (p place) {
	t.Helper()
	s, out := status(t, zkr("ps", "--json", path))
	require.Zero(t, s, out)
	require.NoError(t, json.Unmarshal([]byte(out), &p))
	return p
}

func TestForeignContendersAreRecognised(t *testing.T) {
	srv := ensemble.Real(t)
	zkr := buildZkr(t, srv.ConnectString())
	for library, start := range map[string]func(testing.TB, string) *interop.Peer{"curator": interop.Curator, "kazoo": interop.Kazoo} {
		t.Run(library, func(t *testing.T) {
			root, peer := srv.Root(t), start(t, srv.ConnectString())
			twoContend := func(path string) (p place) {
				t.Helper()
				suite.Soon(t, func() bool { p = ps(t, zkr, path); return len(p.Contenders) == 2 }, "contenders")
				require.Equal(t, "holds", p.Contenders[0].State)
				require.Equal(t, "waits", p.Contenders[1].State)
				require.Equal(t, library, p.Contenders[0].Library)
				require.Empty(t, p.Contenders[1].Orphan)
				return p
			}

			// The servers soon remove empty containers, which Curator does not expect.
			for _, path := range []string{root, root + "/lock", root + "/rw", root + "/queue", root + "/group"} {
				err := suite.Session(t, srv.Client(t)).Create(t.Context(), path, nil, zk.FlagPersistent)
				if !errors.Is(err, zk.ErrNodeExists) {
					require.NoError(t, err)
				}
			}

			peer.Do(t, "lock", "l1", root+"/lock")
			waiter := peer.Start("lock", "l2", root+"/lock")
			require.Equal(t, "lock", twoContend(root+"/lock").Recipe)
			peer.Do(t, "unlock", "l1")
			_, err := waiter.Wait(suite.Lasting(t))
			require.NoError(t, err)
			peer.Do(t, "unlock", "l2")

			peer.Do(t, "rlock", "r1", root+"/rw")
			waiter = peer.Start("wlock", "w1", root+"/rw")
			p := twoContend(root + "/rw")
			require.Equal(t, "rwlock", p.Recipe)
			require.Equal(t, "write", p.Contenders[1].Mode)
			peer.Do(t, "unlock", "r1")
			_, err = waiter.Wait(suite.Lasting(t))
			require.NoError(t, err)
			peer.Do(t, "unlock", "w1")

			peer.Do(t, "offer", "q", root+"/queue", "data")
			p = ps(t, zkr, root+"/queue")
			require.Equal(t, "queue", p.Recipe)
			require.Equal(t, 1, p.Queue.Length)
			require.NotNil(t, p.Queue.Oldest)

			peer.Do(t, "join", "m", root+"/group", "host-4", "data")
			suite.Soon(t, func() bool { p = ps(t, zkr, root+"/group"); return len(p.Contenders) == 1 }, "member")
			require.Equal(t, "group", p.Recipe)
			peer.Do(t, "leave", "m")
		})
	}
}
