package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/doctor"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// examine runs doctor, and returns its findings by the names of the checks, and its status.
func examine(t *testing.T, servers string, args ...string) (map[string]doctor.Finding, int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	limit := 5 * time.Minute // of a busy machine
	r := result{status: run(suite.Within(t, limit), newApp(servers, nil, &stdout, &stderr), append([]string{"doctor", "--json"}, args...))}
	r.stdout = stdout.String()
	findings := make(map[string]doctor.Finding)
	for line := range strings.Lines(r.stdout) {
		var f doctor.Finding
		require.NoError(t, json.Unmarshal([]byte(line), &f))
		require.NotContains(t, findings, f.Check)
		require.NotEmpty(t, f.Looked, f.Check)
		require.NotEmpty(t, f.Found, f.Check)
		if f.Status == doctor.Warn || f.Status == doctor.Fail {
			require.NotEmpty(t, f.Do, f.Check)
		}
		findings[f.Check] = f
	}
	return findings, r.status
}

// requireSound requires that nothing has failed but what a busy machine may fail.
func requireSound(t *testing.T, findings map[string]doctor.Finding, status int) {
	t.Helper()
	failed := false
	for _, f := range findings {
		failed = failed || f.Status == doctor.Fail
		require.False(t, f.Status == doctor.Fail && f.Check != "cost", f)
	}
	require.Equal(t, failed, status == exitFailed)
}

func TestDoctorExaminesAServer(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		root := s.Root(t)
		findings, status := examine(t, s.ConnectString(), "--path", root)
		requireSound(t, findings, status)
		require.Len(t, findings, 12)
		for _, check := range []string{"servers", "session", "versions", "session timeout", "containers", "request size"} {
			assert.Equal(t, doctor.OK, findings[check].Status, findings[check])
		}
		assert.Contains(t, findings["quorum"].Found, "one server on its own")
		assert.Contains(t, findings["ACL"].Found, "world:anyone:cdrwa")
		assert.NotEmpty(t, findings["cost"])
		assert.Contains(t, findings["clocks"].Found, "rates differ by")

		stat, err := suite.Session(t, client(t, s)).Exists(t.Context(), root)
		require.NoError(t, err)
		if stat != nil {
			assert.Zero(t, stat.NumChildren, "what doctor wrote is gone")
		}

	})
}

func TestFindingsAreShown(t *testing.T) {
	out := newStream()
	a := newApp("", nil, out, nil)
	a.printFinding(doctor.Finding{Check: "quorum", Status: doctor.Warn, Looked: "modes", Found: "one \x1b[2J", Do: "run three"})
	a.printFinding(doctor.Finding{Check: "lag", Status: doctor.OK, Looked: "writes", Found: "none"})
	assert.Equal(t, `[warn]   quorum: one \x1b[2J
         looked at: modes
         to do: run three
[ok]     lag: none
         looked at: writes
`, out.String())
}

func TestDoctorFindsWhatIsWrong(t *testing.T) {
	s := recipestest.Start(t, recipestest.WithConfig(embedded.Config{
		TickTime: time.Second, MinSessionTimeout: 500 * time.Millisecond, MaxSessionTimeout: 4 * time.Second,
		MaxPacket: 200_000, NoContainers: true,
	}))
	findings, status := examine(t, s.ConnectString())
	requireSound(t, findings, status)
	for check, want := range map[string]string{
		"session timeout": "minSessionTimeout", "request size": "jute.maxbuffer", "containers": "3.5", "ACL": "--auth",
		"four-letter words": "whitelist", "quorum": "three or five",
	} {
		assert.Equal(t, doctor.Warn, findings[check].Status, findings[check])
		assert.Contains(t, findings[check].Do, want)
	}
	assert.Contains(t, findings["request size"].Found, "124875 bytes are accepted")

	findings, status = examine(t, s.ConnectString(), "--timeout", "1s")
	assert.Equal(t, exitFailed, status)
	assert.Equal(t, doctor.Fail, findings["session timeout"].Status, findings["session timeout"])
}

func TestDoctorReportsAnEnsembleThatCannotBeReached(t *testing.T) {
	findings, status := examine(t, "127.0.0.1:1,127.0.0.1:2", "--wait", "200ms")
	assert.Equal(t, exitFailed, status)
	require.Len(t, findings, 2)
	assert.Contains(t, findings["servers"].Found, "127.0.0.1:2 does not serve")
	assert.Equal(t, doctor.Fail, findings["session"].Status)
}

func TestDoctorWithoutPermissionLooksAtTheRest(t *testing.T) {
	s := recipestest.Start(t)
	root := s.Root(t)
	c := client(t, s, protocol.WithAuth("digest", []byte("me:secret")), protocol.WithACL(zk.DigestACL(zk.PermAll, "me", "secret")))
	_, err := suite.Session(t, c).EnsurePath(t.Context(), root+"/mine")
	require.NoError(t, err)

	findings, status := examine(t, s.ConnectString(), "--path", root+"/mine")
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, findings["session"].Do, "--auth")
	for _, check := range []string{"lag", "containers", "request size", "cost", "clocks"} {
		assert.Equal(t, doctor.Unknown, findings[check].Status)
	}
	assert.Equal(t, doctor.OK, findings["versions"].Status)

	findings, status = examine(t, s.ConnectString(), "--path", root+"/mine", "--auth", "digest:me:secret")
	requireSound(t, findings, status)
}

func TestDoctorSaysHowManyMembersMayFail(t *testing.T) {
	cluster := ensemble.Start(t, 3)
	findings, status := examine(t, cluster.ConnectString())
	requireSound(t, findings, status)
	assert.Equal(t, doctor.OK, findings["servers"].Status, findings["servers"])
	assert.Equal(t, doctor.OK, findings["quorum"].Status, findings["quorum"])
	assert.Contains(t, findings["quorum"].Found, "3 of 3 voters seen up, 1 leader: one more may fail")
	assert.Equal(t, 3, strings.Count(findings["lag"].Found, "at most"), findings["lag"])

	down := cluster.Followers()[0]
	down.Stop()
	findings, status = examine(t, cluster.ConnectString())
	requireSound(t, findings, status)
	assert.Equal(t, doctor.Warn, findings["servers"].Status)
	assert.Contains(t, findings["servers"].Found, down.ConnectString()+" does not serve")
	assert.Equal(t, doctor.Warn, findings["quorum"].Status)
	assert.Contains(t, findings["quorum"].Found, "2 of 3 voters seen up, 1 leader: no further failure is tolerated")
	assert.Equal(t, 2, strings.Count(findings["lag"].Found, "at most"), findings["lag"])

	cluster.Followers()[0].Stop()
	findings, status = examine(t, cluster.ConnectString(), "--wait", "2s")
	assert.Equal(t, exitFailed, status)
	assert.Equal(t, doctor.Fail, findings["session"].Status)
}
