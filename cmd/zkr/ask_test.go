package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func TestBusySaysByWhomAndWithWhichStatus(t *testing.T) {
	s := recipestest.Start(t)
	root, c := s.Root(t), client(t, s)
	held := lock.WithData([]byte(`{"host":"db1","pid":7,"program":"dump"}`))
	lease, err := lock.New(c, root+"/lock", held).Lock(t.Context())
	require.NoError(t, err)
	for _, args := range [][]string{
		{"lock", "--try", root + "/lock", "--", "true"},
		{"lock", "--wait", "0", root + "/lock", "--", "true"},
		{"lock", "--shared", "--try", root + "/lock", "--", "true"},
		{"hold", "--try", root + "/lock"},
	} {
		suite.Soon(t, func() bool { // a busy machine may be too slow to say more than unknown
			r := inProcess(t, s.ConnectString(), "", args...)
			require.Equal(t, exitBusy, r.status, args)
			return strings.Contains(r.stderr, "held by db1:7 dump (in line since 20")
		}, "its holder")
	}
	for _, args := range [][]string{
		{"elect", root + "/lock", "--wait", "0", "--", "true"}, // which cannot ask without waiting
		{"queue", "take", root + "/queue", "--wait", "0"},
		{"lock", "--try", root + "/lock", "--busy-status", "3", "--", "true"},
	} {
		r := inProcess(t, s.ConnectString(), "", args...)
		assert.Contains(t, []int{exitBusy, 3}, r.status, "%v: %s", args, r.stderr)
	}
	r := inProcess(t, s.ConnectString(), "", "lock", "--try", "--busy-status", "3", root+"/lock", "--", "true")
	assert.Equal(t, 3, r.status)
	require.NoError(t, lease.Unlock(t.Context()))
}

func TestWhyAndStuckSayWhoWaitsForWhom(t *testing.T) {
	s := recipestest.Start(t)
	root, c := s.Root(t), client(t, s)
	session := suite.Session(t, c)
	_, err := session.EnsurePath(t.Context(), root+"/lock")
	require.NoError(t, err)
	for i, host := range []string{"a", "b", "c"} {
		node := fmt.Sprintf("%s/lock/x-lock-%010d", root, i)
		require.NoError(t, session.Create(t.Context(), node, fmt.Appendf(nil, `{"host":%q,"pid":%d}`, host, i+1), zk.FlagEphemeral))
	}
	why := succeed(t, s.ConnectString(), "why", root)
	assert.Regexp(t, `/lock is a lock: 1 hold, 2 wait\.`, why)
	assert.Regexp(t, `a:1 \(session 0x[0-9a-f]+, node x-lock-0000000000\) holds\. In line for [0-9ms]+; since when it holds is unknown\.`, why)
	assert.Regexp(t, `b:2 .* waits for a:1\.`, why)
	assert.Regexp(t, `c:3 .* waits for b:2\.`, why)
	assert.Contains(t, why, "zkr break "+root+"/lock x-lock-0000000000")

	assert.NotContains(t, succeed(t, s.ConnectString(), "ps", root, "--stuck", "1h"), "lock")
	time.Sleep(10 * time.Millisecond) // more than the clock's milliseconds
	r := inProcess(t, s.ConnectString(), "", "ps", root, "--stuck", "1ms")
	assert.Equal(t, exitBusy, r.status)
	assert.Contains(t, r.stderr, "stuck: 1 path in which somebody waits for more than 1ms")
	assert.Contains(t, r.stdout, "c:3")

	one := succeed(t, s.ConnectString(), "ps", root, "--host", "b")
	assert.Contains(t, one, "b:2")
	assert.NotContains(t, one, "a:1")
	assert.Contains(t, succeed(t, s.ConnectString(), "ps", root, "--session", sessionID(session.ID())), "a:1")
	assert.NotContains(t, succeed(t, s.ConnectString(), "ps", root, "--session", "0x1"), "a:1")
}

// Where there is no line, nobody waits for the one before.
func TestWhyKnowsWhatHasNoLine(t *testing.T) {
	s := recipestest.Start(t)
	root, c := s.Root(t), client(t, s)
	session := suite.Session(t, c)
	call := func(key string, n int) string {
		return fmt.Sprintf("/once/%s-%s-run-%010d", session.NewOwner(), key, n)
	}
	for i, node := range []string{"/group/me", call("k", 0), call("l", 1), call("k", 2)} {
		_, err := session.EnsurePath(t.Context(), root+path.Dir(node))
		require.NoError(t, err)
		require.NoError(t, session.Create(t.Context(), root+node, fmt.Appendf(nil, `{"host":"host-%d"}`, i), zk.FlagEphemeral))
	}
	why := func(path string) string { return succeed(t, s.ConnectString(), "why", root+path) }
	assert.Contains(t, why("/group"), "node me): member for ")
	assert.Regexp(t, `host-3 .* waits for host-1\.`, why("/once"))

	first := suite.Later(func() error { _, err := doublebarrier.New(c, root+"/batch", 2).Enter(suite.Lasting(t)); return err })
	said := ""
	suite.Soon(t, func() bool { said = why("/batch"); return strings.Contains(said, "1 wait") }, "a waiter")
	assert.Contains(t, said, "waits for the others to come.")
	_, err := doublebarrier.New(client(t, s), root+"/batch", 2).Enter(suite.Lasting(t))
	require.NoError(t, err)
	require.NoError(t, suite.Wait(t, first))
}

func TestACLNeverStandsForMoreIdentitiesThanWereGiven(t *testing.T) {
	s := recipestest.Start(t)
	root := s.Root(t)
	me := suite.Session(t, client(t, s, protocol.WithAuth("digest", []byte("me:secret"))))
	for acl, want := range map[string]int{"": 1, "creator": 1, "read": 2, "open": 1} {
		path := root + "/" + "acl" + acl
		succeed(t, s.ConnectString(), "--auth", "digest:me:secret", "--acl", acl, "barrier", "set", path)
		got, _, err := me.Conn().GetACL(path)
		require.NoError(t, err)
		assert.Len(t, got, want, acl)
		for _, entry := range got {
			assert.NotEqual(t, "auth", entry.Scheme)
		}
		assert.Equal(t, acl == "open", got[0].Scheme == "world", acl)
		succeed(t, s.ConnectString(), "--auth", "digest:me:secret", "barrier", "remove", path)
	}
	for _, args := range [][]string{{"--acl", "creator"}, {"--acl", "read"}, {"--acl", "auth::cdrwa", "--auth", "digest:a:b"}} {
		r := inProcess(t, s.ConnectString(), "", append(args, "queue", "len", "/q")...)
		assert.Equal(t, exitUsage, r.status, args)
	}
}

// A server may refuse the four-letter word cons: then it is unknown.
func TestClientsAreToldOrUnknown(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/lock"
		_, err := lock.New(client(t, s), path).Lock(t.Context())
		require.NoError(t, err)
		servers, _, _ := strings.Cut(s.ConnectString(), "/")
		conn, err := net.Dial("tcp", strings.Split(servers, ",")[0])
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Write([]byte("cons"))
		require.NoError(t, err)
		answer, err := io.ReadAll(conn)
		require.NoError(t, err)
		told := `heard [0-9.ms]+ ago from \S+; without a word it goes by 20`
		if strings.Contains(string(answer), "whitelist") {
			told = `whether it is alive is unknown: \S+ does not tell: the word cons is closed`
		}
		assert.Regexp(t, told, succeed(t, s.ConnectString(), "why", path, "--wait", "1m"))
		assert.Regexp(t, told, succeed(t, s.ConnectString(), "ps", path, "--alive", "--wait", "1m"))
	})
}

func TestWhySaysWhetherTheHolderIsAlive(t *testing.T) {
	s := recipestest.Start(t, recipestest.WithConfig(embedded.Config{TickTime: 2 * time.Second, MaxSessionTimeout: 5 * time.Minute}))
	root := s.Root(t)
	link := s.Link(t)
	c := link.Client(t, protocol.WithSessionTimeout(5*time.Minute))
	lease, err := lock.New(c, root+"/lock").Lock(t.Context())
	require.NoError(t, err)

	var place struct {
		Contenders []survey.Contender
	}
	require.NoError(t, json.Unmarshal([]byte(succeed(t, s.ConnectString(), "ps", root+"/lock", "--alive", "--json", "--wait", "1m")), &place))
	heard := place.Contenders[0].Client
	assert.Equal(t, s.ConnectString(), heard.Server)
	assert.WithinDuration(t, time.Now(), heard.Heard, suite.Limit)
	assert.Equal(t, 5*time.Minute+4*time.Second, heard.Ends.Sub(heard.Heard), "the session timeout, and two ticks")

	// A server that does not answer may have a connection that the others do not know.
	link.Cut()
	for succeeded := false; !succeeded; {
		why := succeed(t, s.ConnectString(), "why", root+"/lock")
		succeeded = strings.Contains(why, "Its client: no server has a connection of it; without a word it goes by 20")
	}
	why := succeed(t, s.ConnectString()+",127.0.0.1:1", "why", root+"/lock")
	assert.Regexp(t, `whether it is alive is unknown: \S+ does not tell: `, why)
	assert.NotContains(t, why, "no server has")

	link.Heal()
	require.NoError(t, lease.Unlock(suite.Lasting(t)))
}
