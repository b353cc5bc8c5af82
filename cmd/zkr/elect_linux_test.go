package main

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
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
		// The first candidate's node is broken, so its command must end before the next begins.
		require.NoError(t, e.Break(suite.Lasting(t), candidates[0].Node))

		assert.Equal(t, exitLost, a.status())
		assert.Contains(t, a.said(), "zkr: "+path+": the command was ended: ")
		assert.Empty(t, running(pids))
		b.pids()
		leader := suite.Must(t, e.Leader)
		assert.Equal(t, "b", string(leader.Value))
		b.signal(syscall.SIGTERM)
		assert.Equal(t, exitSignal+15, b.status())
	})
}

func TestLeaderNamesTheNextOne(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/leader"
		a := start(t, zkr(t, s.ConnectString(), "elect", path, "--resign-to", "web-3", "--", "sh", "-c", `echo $$; exec sleep 1000`))
		a.pids()
		p := suite.Got(survey.Look(suite.Lasting(t), client(t, s), path, survey.Limits{}))(t)
		assert.Equal(t, "election", p.Kind())
		// Two candidates come, and the later candidate is the named successor.
		next := make(chan string, 2)
		for i, value := range []string{"web-2", `{"host":"web-3"}`} {
			e := election.New(client(t, s), path)
			suite.Later(func() error {
				term, err := e.Campaign(suite.Lasting(t), []byte(value))
				if err == nil {
					next <- value
					err = term.Resign(suite.Lasting(t))
				}
				return err
			})
			suite.Await(t, i+2, e.Candidates)
		}
		a.signal(syscall.SIGTERM)
		assert.Equal(t, exitSignal+15, a.status())
		assert.Equal(t, `{"host":"web-3"}`, suite.Wait(t, next))
		assert.Equal(t, "web-2", suite.Wait(t, next))
	})
}
