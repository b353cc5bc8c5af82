package real_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

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

// startReady starts a process, and waits until it says that it is ready.
func startReady(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out := suite.Got(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	line := suite.Got(bufio.NewReader(out).ReadString('\n'))(t)
	require.Equal(t, "ready\n", line)
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
	// Three members, then two, then one.
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
			suite.Keep(t, srv.Client(t), root+"/lock", root+"/rwlock", root+"/queue", root+"/group")
			// One contender holds a lock (an exclusive one, or a shared one to read), and one
			// waits.
			for recipe, verbs := range map[string][2]string{"lock": {"lock", "lock"}, "rwlock": {"rlock", "wlock"}} {
				path := root + "/" + recipe
				peer.Do(t, verbs[0], recipe+"1", path)
				waiter := peer.Start(verbs[1], recipe+"2", path)
				p := twoContend(path)
				require.Equal(t, recipe, p.Recipe)
				if recipe == "rwlock" {
					require.Equal(t, "write", p.Contenders[1].Mode)
				}
				peer.Do(t, "unlock", recipe+"1")
				suite.Got(waiter.Wait(suite.Lasting(t)))(t)
				peer.Do(t, "unlock", recipe+"2")
			}

			// A queue and a group.
			peer.Do(t, "offer", "q", root+"/queue", "data")
			p := ps(t, zkr, root+"/queue")
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

// cons of a real server says when each client was heard, and why turns that into words.
func TestWhySaysWhenAnEnsembleHeardOfTheHolder(t *testing.T) {
	cluster := ensemble.Start(t, 3, ensemble.WithConfig("4lw.commands.whitelist=*"))
	zkr, path := buildZkr(t, cluster.ConnectString()), cluster.Server(t).Root(t)+"/lock"
	holder := zkr("lock", "--label", "nightly", path, "--", "sh", "-c", "echo ready; exec sleep 1000")
	startReady(t, holder)
	defer holder.Wait()
	defer holder.Process.Signal(syscall.SIGTERM)

	s, why := status(t, zkr("why", path, "--wait", "1m"))
	require.Zero(t, s)
	assert.Regexp(t, ` \(lock\): 1 hold, 0 wait\.\n  \S+:\d+ sh \(nightly\) \(session 0x[0-9a-f]+, node \S+\) holds for \d+s, after \d+s in line\.`, why)
	assert.Regexp(t, `Its client: heard \S+ ago from 127\.0\.0\.1:\d+; without a word it goes by 20`, why)

	// The server that the holder is connected to may be down, and it goes on elsewhere.
	cluster.Followers()[0].Stop()
	suite.Soon(t, func() bool {
		_, why = status(t, zkr("why", path))
		return strings.Contains(why, "Its client: heard ") || strings.Contains(why, "whether it is alive is unknown: ")
	}, "an answer of the others")
}

// With a certificate, and no credential, new nodes are for the certificate alone.
func TestZkrClosesNodesForItsCertificate(t *testing.T) {
	a, server := startTLS(t)
	as := func(subject string) []string {
		files := filesOf(t, a, subject)
		return []string{
			"--servers", server.SecureConnectString(), "--tls-server-name", files.ServerName,
			"--tls-ca", files.CA, "--tls-cert", files.Certificate, "--tls-key", files.Key,
		}
	}
	zkr := buildZkr(t, server.SecureConnectString())
	alice, bob := as("alice"), as("bob")
	for _, c := range []struct {
		as     []string
		call   []string
		status int
		prints string
	}{
		// Nodes that alice creates are for her certificate alone.
		{alice, []string{"value", "set", "/mine", "secret"}, 0, ""},
		{alice, []string{"value", "get", "/mine"}, 0, "secret"},
		{bob, []string{"value", "get", "/mine"}, refused, ""},
		// A list of identities lets others in.
		{alice, []string{"--acl", "x509:CN=alice:cdrwa,x509:CN=bob:r", "value", "set", "/shared", "for two"}, 0, ""},
		{bob, []string{"value", "get", "/shared"}, 0, "for two"},
		{bob, []string{"value", "set", "/shared", "mine"}, refused, ""},
		// The credential may be asked for by name.
		{bob, []string{"--auth", "x509:", "value", "set", "/bobs", "b"}, 0, ""},
		{alice, []string{"value", "get", "/bobs"}, refused, ""},
	} {
		s, printed := status(t, zkr(slices.Concat(c.as, c.call)...))
		require.Equal(t, c.status, s, c.call)
		if c.prints != "" {
			require.Equal(t, c.prints, printed, c.call)
		}
	}
}

const refused = 77 // zkr's exit status
