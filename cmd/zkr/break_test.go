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
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

func TestBreakWithoutATerminalNeedsYes(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/lock"
		lease, err := lock.New(client(t, s), path).Lock(t.Context())
		require.NoError(t, err)
		for _, verb := range []string{"break", "revoke"} {
			r := inProcess(t, s.ConnectString(), "y\n", verb, path, lease.Node())
			assert.Equal(t, exitUsage, r.status)
			assert.Contains(t, r.stderr, "--yes")
			assert.Contains(t, r.stderr, "holds", "it says whose node it is")
		}
		require.NoError(t, lease.Err())

		revoked := lease.Revoked()
		succeed(t, s.ConnectString(), "revoke", path, lease.Node(), "--yes")
		suite.Wait(t, revoked)
		require.NoError(t, lease.Err())
		succeed(t, s.ConnectString(), "break", path, lease.Node(), "--yes")
		suite.Wait(t, lease.Done())

		r := inProcess(t, s.ConnectString(), "", "break", path, lease.Node(), "--yes")
		assert.Equal(t, exitFailed, r.status)
		assert.Contains(t, r.stderr, "no contender")
	})
}

func TestBreakSparesTheNextMemberOfAName(t *testing.T) {
	s := recipestest.Start(t)
	root, c := s.Root(t), client(t, s)
	g := group.New(c, root+"/group")
	member, err := g.Join(t.Context(), "me", nil)
	require.NoError(t, err)
	p, err := survey.Look(t.Context(), c, root+"/group", survey.Limits{})
	require.NoError(t, err)
	require.NoError(t, member.Leave(t.Context()))
	_, err = g.Join(t.Context(), "me", nil)
	require.NoError(t, err)

	require.NoError(t, breakContender(t.Context(), c, p, p.Find("me"), ""))
	peers, err := g.Members(t.Context())
	require.NoError(t, err)
	assert.Len(t, peers, 1)
}

func TestBreakEndsReservationsPermitsAndMemberships(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		root, servers, c := s.Root(t), s.ConnectString(), client(t, s)
		q := queue.New(c, root+"/queue")
		id, err := q.Offer(t.Context(), []byte("x"))
		require.NoError(t, err)
		item, err := q.Reserve(t.Context())
		require.NoError(t, err)
		succeed(t, servers, "break", root+"/queue", id, "--yes")
		suite.Wait(t, item.Done())
		assert.Equal(t, "x", succeed(t, servers, "queue", "take", root+"/queue"))

		permit, err := semaphore.New(c, root+"/permits", 1).Acquire(t.Context())
		require.NoError(t, err)
		r := inProcess(t, servers, "", "revoke", root+"/permits", permit.Node(), "--yes")
		assert.Equal(t, exitUsage, r.status)
		succeed(t, servers, "break", root+"/permits", permit.Node(), "--yes")
		suite.Wait(t, permit.Done())

		member, err := group.New(c, root+"/group").Join(t.Context(), "me", nil)
		require.NoError(t, err)
		succeed(t, servers, "break", root+"/group", "me", "--yes")
		suite.Wait(t, member.Changes())
	})
}

// The node cannot be deleted here, so it keeps what break has written to it before.
func TestReasonIsWhatTheNodeHasLast(t *testing.T) {
	s := recipestest.Start(t)
	path, c := s.Root(t)+"/lock", client(t, s)
	lease, err := lock.New(c, path).Lock(t.Context())
	require.NoError(t, err)
	session := suite.Session(t, c)
	_, err = session.Conn().SetACL(path, zk.WorldACL(zk.PermAll&^zk.PermDelete), -1)
	require.NoError(t, err)
	r := inProcess(t, s.ConnectString(), "", "break", path, lease.Node(), "--yes", "--reason", "host is\x1b dead")
	assert.Equal(t, exitRefused, r.status, r.stderr)
	data, _, err := session.Get(t.Context(), path+"/"+lease.Node())
	require.NoError(t, err)
	assert.Regexp(t, `^{"broken_by":".*","reason":"host is\\u001b dead"}\s*$`, string(data))

	_, err = session.Conn().SetACL(path, zk.WorldACL(zk.PermAll), -1)
	require.NoError(t, err)
}
