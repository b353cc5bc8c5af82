package main

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// The commands that answer an operator's questions in docs/zkr.md are run as they stand there, but for
// those that run for long, and those that end or start something.
func TestOperatorsQuestionsHaveAnswers(t *testing.T) {
	text, err := os.ReadFile("../../docs/zkr.md")
	require.NoError(t, err)
	questions := regexp.MustCompile("(?m)^\\| (.*) \\| `zkr (.*)` \\|$").FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(questions), 40)

	s := recipestest.Start(t)
	c := client(t, s)
	lease, err := lock.New(c, "/locks/backup").Lock(t.Context())
	require.NoError(t, err)
	waiter := suite.Later(func() error { _, err := lock.New(client(t, s), "/locks/backup").Lock(t.Context()); return err })
	_, err = queue.New(c, "/queues/mail").Offer(t.Context(), []byte("hello"))
	require.NoError(t, err)
	_, err = election.New(c, "/services/billing").Campaign(t.Context(), []byte("billing-1"))
	require.NoError(t, err)
	_, err = group.New(c, "/services/search").Join(t.Context(), "host-4", nil)
	require.NoError(t, err)

	_, err = semaphore.New(c, "/limits/export", 4).Acquire(t.Context())
	require.NoError(t, err)
	_, err = once.New(c, "/jobs/report").Do(t.Context(), "2030-01-31", func(context.Context, *once.Run) error { return nil })
	require.NoError(t, err)

	runs := regexp.MustCompile(`watch|^(ui|exporter|hold|once /|doctor|--tls)|await|^lock /|^(break|revoke|queue free|queue remove)`)
	busy := regexp.MustCompile(`--try|--wait 0`)
	answers := make(map[string]string)
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
		answers[q[2]] = r.stdout
	}
	for command, want := range map[string]string{
		"why /locks/backup": "In line for", "ps /locks/backup --json": `"token":`, "leader /services/billing": "billing-1",
		"group members /services/search": "host-4", "queue len /queues/mail": "1", "queue peek /queues/mail": "hello",
		"ps /queues/mail": "1 element, oldest", "ps /services/billing": "holds", "ps /services/search": "member",
		"semaphore show /limits/export": "1 of 4 held", "ps / --alive": "heard ", "queue list /queues/mail": "waits",
	} {
		assert.Contains(t, answers[command], want, command)
	}

	// An operator takes it away, and the next one has it.
	succeed(t, s.ConnectString(), "break", "/locks/backup", lease.Node(), "--reason", "a test", "--yes")
	select {
	case err := <-waiter:
		require.NoError(t, err)
	case <-time.After(suite.Limit):
		t.Fatal("the lock did not go on")
	}
}
