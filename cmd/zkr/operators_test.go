package main

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// The commands that answer an operator's questions in docs/zkr.md are run as they stand there.
// Commands that run for long, or end or start something, are left out.
func TestOperatorsQuestionsHaveAnswers(t *testing.T) {
	text := suite.Got(os.ReadFile("../../docs/zkr.md"))(t)
	questions := regexp.MustCompile("(?m)^\\| (.*) \\| `zkr (.*)` \\|$").FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(questions), 40)

	s := recipestest.Start(t)
	c := client(t, s)
	suite.Got(lock.New(c, "/locks/backup").Lock(t.Context()))(t)
	suite.Got(queue.New(c, "/queues/mail").Offer(t.Context(), []byte("hello")))(t)
	suite.Got(election.New(c, "/services/billing").Campaign(t.Context(), []byte("billing-1")))(t)
	suite.Got(group.New(c, "/services/search").Join(t.Context(), "host-4", nil))(t)
	require.NoError(t, barrier.New(c, "/barriers/migration").Set(t.Context()))
	suite.Got(semaphore.New(c, "/limits/export", 4).Acquire(t.Context()))(t)
	_, err := once.New(c, "/jobs/report").Do(t.Context(), "2030-01-31", func(context.Context, *once.Run) error { return nil })
	require.NoError(t, err)

	runs := regexp.MustCompile(`watch|^(ui|exporter|hold|once /|doctor|--tls)|await|^lock /|^(break|revoke|queue free|queue remove)`)
	busy := regexp.MustCompile(`--try|--wait 0`)
	for _, q := range questions {
		args := strings.Fields(q[2])
		checkCommand(t, args, q[0])
		if runs.MatchString(q[2]) {
			continue
		}
		if strings.Contains(q[2], "--alive") {
			args = append(args, "--wait", "1m") // a busy machine is no server that refuses
		}
		r := inProcess(t, s.ConnectString(), "", args...)
		if busy.MatchString(q[2]) {
			assert.Contains(t, []int{exitBusy, 1}, r.status, q[0])
			continue
		}
		assert.Zero(t, r.status, "%s: %s", q[0], r.stderr)
	}
}
