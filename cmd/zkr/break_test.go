package main

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestBreakSparesTheNextMemberOfAName(t *testing.T) {
	s := recipestest.Start(t)
	root, c := s.Root(t), client(t, s)
	g := group.New(c, root+"/group")
	member := suite.Got(g.Join(t.Context(), "me", nil))(t)
	// The survey shows the first member, and another member has the name by now.
	p := suite.Got(survey.Look(t.Context(), c, root+"/group", survey.Limits{}))(t)
	require.NoError(t, member.Leave(t.Context()))
	next := suite.Got(g.Join(t.Context(), "me", nil))(t)

	require.NoError(t, breakContender(t.Context(), c, p, p.Find("me"), ""))
	peers := suite.Must(t, g.Members)
	assert.Len(t, peers, 1)

	succeed(t, s.ConnectString(), "break", root+"/group", "me", "--yes")
	suite.Wait(t, next.Changes())
}

// The node cannot be deleted here, so it keeps what break has written to it before.
func TestReasonIsWhatTheNodeHasLast(t *testing.T) {
	s := recipestest.Start(t)
	path, c := s.Root(t)+"/lock", client(t, s)
	lease := suite.Must(t, lock.New(c, path).Lock)
	session := suite.Session(t, c)
	suite.Got(session.Conn().SetACL(path, zk.WorldACL(zk.PermAll&^zk.PermDelete), -1))(t)
	r := inProcess(t, s.ConnectString(), "", "break", path, lease.Node(), "--yes", "--reason", "host is\x1b dead")
	assert.Equal(t, exitRefused, r.status, r.stderr)
	data, _ := suite.Get(t, c, path+"/"+lease.Node())
	assert.Regexp(t, `^{"broken_by":".*","host":".*","reason":"host is\\u001b dead","zkrecipes":1}\s*$`, string(data))

	// The holder still understands what is asked for.
	succeed(t, s.ConnectString(), "revoke", path, lease.Node(), "--yes", "--reason", "deployment")
	data, _ = suite.Get(t, c, path+"/"+lease.Node())
	assert.Contains(t, string(data), `"reason":"deployment"`)
	suite.Wait(t, lease.Revoked())

	suite.Got(session.Conn().SetACL(path, zk.WorldACL(zk.PermAll), -1))(t)
}
