package main

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestNextCandidateLeadsAfterALoss(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/leader"
		elect := func(value string) *process {
			return start(t, zkr(t, s.ConnectString(), "elect", "--timeout", long, "--value", value, path, "--",
				"sh", "-c", `echo $$; exec sleep 1000`))
		}
		a := elect("a")
		pids := a.pids()
		b := elect("b")
		e := election.New(s.Client(t), path)
		candidates := suite.Await(t, 2, e.Candidates)
		require.NoError(t, e.Break(suite.Lasting(t), candidates[0].Node))

		assert.Equal(t, exitLost, a.status())
		assert.Contains(t, a.said(), "zkr: "+path+": the command was ended: ")
		assert.Empty(t, running(pids))
		b.pids()
		leader, err := e.Leader(suite.Lasting(t))
		require.NoError(t, err)
		assert.Equal(t, "b", string(leader.Value))
		b.signal(syscall.SIGTERM)
		assert.Equal(t, exitSignal+15, b.status())
	})
}
