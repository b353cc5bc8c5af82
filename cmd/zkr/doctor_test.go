package main

import (
	"bytes"
	"encoding/json"
	"fmt"
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
		// A finding that isn't well says what to do.
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
		require.Len(t, findings, 14)
		var requests int
		suite.Got(fmt.Sscanf(findings["requests"].Found, "%d requests", &requests))(t)
		assert.LessOrEqual(t, requests, 200, "doctor hurts nobody")
		assert.Greater(t, requests, 50)
		assert.Equal(t, doctor.OK, findings["one ensemble"].Status, findings["one ensemble"])
		assert.Equal(t, doctor.Unknown, findings["settings"].Status)
		assert.Contains(t, findings["settings"].Found, "unknown, as to ask would hurt: dump, wchc, wchp")
		for _, check := range []string{"servers", "session", "versions", "session timeout", "quotas", "request size"} {
			assert.Equal(t, doctor.OK, findings[check].Status, findings[check])
		}
		assert.Contains(t, findings["quorum"].Found, "one server on its own")
		assert.Contains(t, findings["ACL"].Found, "world:anyone:cdrwa")
		assert.NotEmpty(t, findings["cost"])
		assert.Contains(t, findings["clocks"].Found, "rates differ by")

		stat := suite.Got(suite.Session(t, client(t, s)).Exists(t.Context(), root))(t)
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
	assert.Equal(t, `[warn]    quorum: one \x1b[2J
          looked at: modes
          to do: run three
[ok]      lag: none
          looked at: writes
`, out.String())
}

func TestDoctorFindsWhatIsWrong(t *testing.T) {
	s := recipestest.Start(t, recipestest.WithConfig(embedded.Config{
		TickTime: time.Second, MinSessionTimeout: 500 * time.Millisecond, MaxSessionTimeout: 4 * time.Second,
		MaxPacket: 200_000,
	}))
	findings, status := examine(t, s.ConnectString())
	requireSound(t, findings, status)
	for check, want := range map[string]string{
		"session timeout": "minSessionTimeout", "request size": "jute.maxbuffer", "ACL": "--auth",
		"quorum": "three or five",
	} {
		assert.Equal(t, doctor.Warn, findings[check].Status, findings[check])
		assert.Contains(t, findings[check].Do, want)
	}
	assert.Contains(t, findings["request size"].Found, "124875 bytes are accepted")

	findings, status = examine(t, s.ConnectString(), "--timeout", "1s")
	assert.Equal(t, exitFailed, status)
	assert.Equal(t, doctor.Fail, findings["session timeout"].Status, findings["session timeout"])
}

func TestDoctorFailsOnTwoEnsembles(t *testing.T) {
	a, b := recipestest.Start(t), recipestest.Start(t)
	findings, status := examine(t, a.ConnectString()+","+b.ConnectString())
	require.Equal(t, exitFailed, status)
	require.Equal(t, doctor.Fail, findings["one ensemble"].Status)
	require.Contains(t, findings["one ensemble"].Found, "has no such node")
	require.Contains(t, findings["one ensemble"].Found, "2 standalone")

	// A server that isn't reached is unknown.
	findings, status = examine(t, a.ConnectString()+",127.0.0.1:1")
	require.Equal(t, doctor.Unknown, findings["one ensemble"].Status, findings["one ensemble"])
	require.NotContains(t, findings["one ensemble"].Found, "deadline", "it refuses at once")
	requireSound(t, findings, status)
}

func TestDoctorFailsOnAMistypedChroot(t *testing.T) {
	s := recipestest.Start(t)
	c := client(t, s)
	suite.Ensure(t, suite.Session(t, c), "/app")
	findings, status := examine(t, s.ConnectString()+"/ap")
	require.Equal(t, exitFailed, status)
	require.Equal(t, doctor.Fail, findings["chroot"].Status)
	stat := suite.Got(suite.Session(t, c).Exists(t.Context(), "/ap"))(t)
	require.Nil(t, stat, "it was not created")
	findings, status = examine(t, s.ConnectString()+"/app")
	requireSound(t, findings, status)
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
	suite.Ensure(t, suite.Session(t, c), root+"/mine")

	// Without a credential, only checks that need no access find something.
	findings, status := examine(t, s.ConnectString(), "--path", root+"/mine")
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, findings["session"].Do, "--auth")
	for _, check := range []string{"lag", "request size", "cost", "clocks"} {
		assert.Equal(t, doctor.Unknown, findings[check].Status)
	}
	assert.Equal(t, doctor.OK, findings["versions"].Status)

	findings, status = examine(t, s.ConnectString(), "--path", root+"/mine", "--auth", "digest:me:secret")
	requireSound(t, findings, status)
}

func TestDoctorWarnsOfQuotasAndOfManyEphemeralNodes(t *testing.T) {
	s := recipestest.Start(t)
	c := client(t, s)
	session := suite.Session(t, c)
	for _, node := range []struct{ path, data string }{
		{"/full", ""}, {"/roomy", ""}, {"/zookeeper/quota/full", ""}, {"/zookeeper/quota/roomy", ""},
		{"/zookeeper/quota/full/zookeeper_limits", "count=10,bytes=-1"}, {"/zookeeper/quota/full/zookeeper_stats", "count=1,bytes=0"},
		{"/zookeeper/quota/roomy/zookeeper_limits", "count=10,bytes=-1=;byteHardLimit=1000;countHardLimit=-1"},
		{"/zookeeper/quota/roomy/zookeeper_stats", "count=1,bytes=0"},
	} {
		suite.Got(session.Conn().Create(node.path, []byte(node.data), 0, zk.WorldACL(zk.PermAll)))(t)
	}
	for i := range 8 {
		require.NoError(t, session.Create(t.Context(), fmt.Sprintf("/full/%d", i), nil, 0))
	}
	findings, _ := examine(t, s.ConnectString())
	assert.Equal(t, doctor.Warn, findings["quotas"].Status)
	assert.Contains(t, findings["quotas"].Found, "/full has 9 of 10 (count); 2 quotas")
	assert.NotContains(t, findings["quotas"].Found, "roomy")
	assert.Regexp(t, `; \d+ ephemeral nodes, which are not too many for one session;`, findings["settings"].Found)
	assert.Contains(t, findings["settings"].Found, "open words: srvr, ruok")
	assert.Contains(t, findings["settings"].Found, "zookeeper.forward_learner_requests")
}
