package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
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

func TestManualPageHasAllHelp(t *testing.T) {
	page := succeed(t, "", "man")
	assert.True(t, strings.HasPrefix(page, ".TH ZKR 1\n.SH NAME\nzkr \\- "))
	for _, want := range []string{".SH ZKR QUEUE WORK\n", "\\-\\-busy\\-status", "What is not known is called unknown."} {
		assert.Contains(t, page, want)
	}
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("no man")
	}
	cmd := exec.CommandContext(t.Context(), "man", "--warnings", "-l", "-")
	cmd.Stdin = strings.NewReader(page)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "zkr lock PATH [flags] -- COMMAND")
}

// The units and the image that are given to others run commands that exist.
func TestDeployedFilesRunWhatExists(t *testing.T) {
	units := suite.Got(filepath.Glob("deploy/*.service"))(t)
	require.NotEmpty(t, units)
	for _, unit := range units {
		text := suite.Got(os.ReadFile(unit))(t)
		run := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/zkr (.*)$`).FindStringSubmatch(string(text))
		require.NotNil(t, run, unit)
		checkCommand(t, strings.Fields(run[1]), unit)
		assert.Contains(t, string(text), "\nKillMode=mixed\n", "the command gets one SIGTERM")
	}
	image := suite.Got(os.ReadFile("deploy/Dockerfile"))(t)
	assert.Contains(t, string(image), `ENTRYPOINT ["/zkr"]`)
	assert.Contains(t, string(image), "CGO_ENABLED=0 go build -C cmd/zkr", "nothing else is in the image")
}

func TestExitStatusesAreThoseOfTheDocumentation(t *testing.T) {
	page := suite.Got(os.ReadFile("../../docs/zkr.md"))(t)
	table := regexp.MustCompile(`(?s)\n## Exit statuses\n.*?\n## `).FindString(string(page))
	for _, status := range []int{exitUsage, exitUnreachable, exitFailed, exitUnknown, exitBusy, exitLost, exitRefused, exitCertificate, exitTimedOut,
		exitCannotRun, exitNotFound, exitSignal} {
		assert.Regexp(t, fmt.Sprintf(`\n\|[^|]*\b%d\b[^|]*\|`, status), table)
		assert.Regexp(t, fmt.Sprintf(`\n +%d\b`, status), help("zkr"))
	}
}
