package main

import (
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func TestBusySaysByWhom(t *testing.T) {
	s := recipestest.Start(t)
	path := s.Root(t) + "/lock"
	held := lock.WithData([]byte(`{"host":"db1","pid":7,"program":"dump"}`))
	suite.Must(t, lock.New(client(t, s), path, held).Lock)
	for _, args := range [][]string{{"lock", "--try", path, "--", "true"}, {"hold", "--try", path}} {
		suite.Soon(t, func() bool { // a busy machine may be too slow to say more than unknown
			r := inProcess(t, s.ConnectString(), "", args...)
			require.Equal(t, exitBusy, r.status, args)
			return strings.Contains(r.stderr, "held by db1:7 dump (in line since 20")
		}, "its holder")
	}
	assert.Equal(t, ", held by: unknown", heldBy(t.Context(), client(t, s), path+"/free"))
}

func TestACLNeverStandsForMoreIdentitiesThanWereGiven(t *testing.T) {
	s := recipestest.Start(t)
	root := s.Root(t)
	me := suite.Session(t, client(t, s, protocol.WithAuth("digest", []byte("me:secret"))))
	for acl, want := range map[string]int{"": 1, "creator": 1, "read": 2, "open": 1} {
		path := root + "/" + "acl" + acl
		succeed(t, s.ConnectString(), "--auth", "digest:me:secret", "--acl", acl, "barrier", "set", path)
		got := suite.ReadAt(t, me.Conn().GetACL, path)
		assert.Len(t, got, want, acl)
		for _, entry := range got {
			assert.NotEqual(t, "auth", entry.Scheme)
		}
		assert.Equal(t, acl == "open", got[0].Scheme == "world", acl)
		succeed(t, s.ConnectString(), "--auth", "digest:me:secret", "barrier", "remove", path)
	}
}

// A server may refuse the four-letter word cons: then it is unknown.
func TestClientsAreToldOrUnknown(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/lock"
		suite.Must(t, lock.New(client(t, s), path).Lock)
		// Does this server answer the word cons at all?
		servers, _, _ := strings.Cut(s.ConnectString(), "/")
		conn := suite.Got(net.Dial("tcp", strings.Split(servers, ",")[0]))(t)
		defer conn.Close()
		suite.Got(conn.Write([]byte("cons")))(t)
		answer := suite.Got(io.ReadAll(conn))(t)
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
	lease := suite.Must(t, lock.New(c, root+"/lock").Lock)

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
