package main

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHelpStandsAlone(t *testing.T) {
	help := succeed(t, "", "help")
	for _, cmd := range newRootCommand(newApp("", nil, nil, nil)).Commands() {
		assert.Contains(t, help, "  "+cmd.Name()+" ")
		about := succeed(t, "", "help", cmd.Name())
		assert.Contains(t, about, "Usage:\n  zkr "+cmd.Name())
		assert.Equal(t, about, succeed(t, "", cmd.Name(), "--help"))
	}
	assert.Equal(t, help, succeed(t, ""), "without a command")
	assert.Regexp(t, `\Azkr version \S+\n\z`, succeed(t, "", "--version"))
}

func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		assert.Contains(t, succeed(t, "", "completion", shell), "zkr")
	}
	assert.Contains(t, succeed(t, "", "__complete", "queue", "d"), "drain\t")
}

func TestExitStatusesAreThoseOfTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/zkr.md")
	require.NoError(t, err)
	table := regexp.MustCompile(`(?s)\n## Exit statuses\n.*?\n## `).FindString(string(page))
	for _, status := range []int{exitUsage, exitUnreachable, exitFailed, exitBusy, exitLost, exitRefused, exitTimedOut,
		exitCannotRun, exitNotFound, exitSignal} {
		assert.Regexp(t, fmt.Sprintf(`\n\|[^|]*\b%d\b[^|]*\|`, status), table)
		assert.Regexp(t, fmt.Sprintf(`\n +%d\b`, status), rootHelp)
	}
}
