package planted_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/real/mutants/planted"
	"github.com/zkrecipes/zkrecipes/internal/suite"
)

func TestEachBugFitsTheCodeAndHasACheck(t *testing.T) {
	root, err := planted.Root()
	require.NoError(t, err)
	names := make(map[string]bool)
	for _, b := range planted.Bugs {
		assert.False(t, names[b.Name], "two bugs are called %q", b.Name)
		names[b.Name] = true
		assert.True(t, b.Test != "" || b.Recipes != nil, b.Name)
		_, err = b.Overlay(root, t.TempDir())
		assert.NoError(t, err)
		tests := testsOf(t, filepath.Join(root, b.Dir()))
		// Each pattern must match a test, or no test would find the bug.
		for pattern := range strings.SplitSeq(b.Test, "|") {
			test, err := regexp.Compile(strings.Split(pattern, "/")[0])
			require.NoError(t, err, b.Name)
			assert.True(t, b.Test == "" || slices.ContainsFunc(tests, test.MatchString),
				"%s: no test of %s matches %s", b.Name, b.Dir(), pattern)
		}
	}
}

// testsOf returns the names of the tests in a directory.
func testsOf(t *testing.T, dir string) (names []string) {
	files := suite.Got(filepath.Glob(filepath.Join(dir, "*_test.go")))(t)
	for _, file := range files {
		text := suite.Got(os.ReadFile(file))(t)
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "func Test"); ok {
				name, _, _ := strings.Cut(rest, "(")
				names = append(names, "Test"+name)
			}
		}
	}
	return names
}

func TestCodeThatOccursTwiceIsRefused(t *testing.T) {
	_, err := planted.Bug{Name: "x", File: "x.go", Old: "a"}.Plant("aa")
	require.ErrorContains(t, err, "x: its code occurs 2 times in x.go")
}

func TestModuleIsTheInnermost(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "a/b/c"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "a/b/go.mod"), nil, 0o600))
	assert.Equal(t, filepath.Join(root, "a/b"), planted.Module(root, "a/b/c"))
	assert.Equal(t, root, planted.Module(root, "a"))
}
