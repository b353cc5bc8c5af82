package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What the documents of the repository tell users to type has to exist: commands and flags.
func TestDocumentsNameCommandsAndFlagsThatExist(t *testing.T) {
	typed := regexp.MustCompile("(?m)^(?:\\$ )?zkr (.*?)(?:  .*)?$|`zkr ([^`\n]*)`|go run -C cmd/zkr \\. (.*)$")

	found := 0
	for _, doc := range documents(t) {
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		for _, match := range typed.FindAllStringSubmatch(string(text), -1) {
			found++
			checkCommand(t, strings.Fields(match[1]+match[2]+match[3]), doc+": "+match[0])
		}
	}
	require.Greater(t, found, 30)
}

func checkCommand(t *testing.T, args []string, at string) {
	t.Helper()
	root := newRootCommand(&app{getenv: func(string) string { return "" }})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(args)
	require.NoError(t, err, at)
	for _, arg := range rest {
		if arg == "--" {
			break // the rest is another command's
		}
		if name, ok := strings.CutPrefix(arg, "--"); ok {
			name, _, _ = strings.Cut(name, "=")
			known := cmd.Flags().Lookup(name) != nil || cmd.InheritedFlags().Lookup(name) != nil || name == "help"
			assert.True(t, known, "%s: there is no flag --%s", at, name)
		}
	}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		assert.NotEqual(t, root, cmd, "%s: there is no such command", at)
	}
}

func documents(t *testing.T) (found []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" && filepath.Base(path) != "CHANGELOG.md" {
			found = append(found, path)
		}
		return err
	}))
	return found
}
