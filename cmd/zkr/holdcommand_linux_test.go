package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestHoldHoldsUntilASignalARevocationOrALoss(t *testing.T) {
	s := recipestest.Start(t)
	path := s.Root(t) + "/lock"
	m := lock.New(s.Client(t), path)
	for name, c := range map[string]struct {
		end    func(p *process, node string) error
		status int
	}{
		"signal":     {func(p *process, _ string) error { return p.cmd.Process.Signal(syscall.SIGTERM) }, 0},
		"revocation": {func(_ *process, node string) error { return m.Revoke(suite.Lasting(t), node) }, 0},
		"loss":       {func(_ *process, node string) error { return m.Break(suite.Lasting(t), node) }, exitLost},
	} {
		p := start(t, zkr(t, s.ConnectString(), "hold", path))
		words := strings.Fields(p.line())
		require.Len(t, words, 2)
		node, ok := strings.CutPrefix(words[0], path+"/")
		require.True(t, ok, words)
		require.NoError(t, c.end(p, node), name)
		assert.Equal(t, c.status, p.status(), name)
		awaitContenders(t, s, path, 0)
	}
}

func TestWaiterSaysThatItHasLostItsPlace(t *testing.T) {
	s := recipestest.Start(t)
	path := s.Root(t) + "/lock"
	lease := lockNow(t, s, path)
	p := start(t, zkr(t, s.ConnectString(), "lock", path, "--", "true"))
	m := lock.New(s.Client(t), path)
	// The session may be replaced before this looks, so expire it until the line shows a new
	// session.
	for session := suite.Await(t, 2, m.Contenders)[1].Session; ; {
		s.ExpireSession(session)
		if line := suite.Await(t, 2, m.Contenders); line[1].Session != session {
			break
		}
	}
	require.NoError(t, lease.Unlock(suite.Lasting(t)))
	assert.Zero(t, p.status())
	assert.Contains(t, p.said(), "the session is lost: what was held is lost, and what waits goes to the end of the line")
}
