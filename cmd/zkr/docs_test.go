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

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

// What the documents of the repository tell users to type has to exist: commands and flags.
func TestDocumentsNameCommandsAndFlagsThatExist(t *testing.T) {
	typed := regexp.MustCompile("(?m)^(?:\\$ )?zkr (.*?)(?:  .*)?$|`zkr ([^`\n]*)`|go run -C cmd/zkr \\. (.*)$")

	found := 0
	for _, doc := range documents(t) {
		text := suite.Got(os.ReadFile(doc))(t)
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
		// Flags end where the other command begins.
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

// Each section and each item of the command's page is a promise. testdata/promises.txt names the
// tests or transcripts of each promise, or says that it isn't a promise (a limit of a promise, or
// advice).
func TestEachPromiseOfThePageHasATest(t *testing.T) {
	page := suite.Got(os.ReadFile("../../docs/zkr.md"))(t)
	list := suite.Got(os.ReadFile("testdata/promises.txt"))(t)
	tests := testsOf(t, "../..")

	// The list names tests and transcripts that exist.
	promises := make(map[string]bool)
	for line := range strings.Lines(string(list)) {
		begins, names, ok := strings.Cut(strings.TrimSpace(line), " => ")
		require.True(t, ok, line)
		promises[begins] = false
		for _, name := range strings.Fields(names) {
			if strings.HasPrefix(name, "transcripts/") {
				assert.FileExists(t, "testdata/"+name)
				continue
			}
			assert.True(t, tests[name] || name == "limit" || name == "advice", "%s: %s", begins, name)
		}
	}
	// The page and the list have the same items.
	for _, item := range regexp.MustCompile("(?m)^(?:- |##+ )(.*)$").FindAllStringSubmatch(string(page), -1) {
		found := false
		for begins := range promises {
			if strings.HasPrefix(item[1], begins) {
				found, promises[begins] = true, true
			}
		}
		assert.True(t, found, "no test is named of what begins with: %s", item[1])
	}
	for begins, used := range promises {
		assert.True(t, used, "the page has nothing that begins with: %s", begins)
	}
}

// testsOf returns the names of all tests below a directory.
func testsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			names[match[1]] = true
		}
		return err
	}))
	return names
}
