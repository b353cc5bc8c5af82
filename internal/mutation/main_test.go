package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryMutationHasItsCode(t *testing.T) {
	t.Chdir("../..")
	names := make(map[string]bool)
	for _, m := range mutations {
		require.False(t, names[m.Name], "two mutations are called %q", m.Name)
		names[m.Name] = true
		if _, err := m.mutant(); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

// A test that has moved to another package, or has got another name, is missed only when its
// mutation runs.
func TestEveryMutationHasItsTests(t *testing.T) {
	t.Chdir("../..")
	known := make(map[string][]string)
	for _, m := range mutations {
		dir := m.pkg()
		if known[dir] == nil {
			known[dir] = testsOf(t, dir)
		}
		for pattern := range strings.SplitSeq(m.Test, "|") {
			test, err := regexp.Compile(strings.Split(pattern, "/")[0])
			require.NoError(t, err, m.Name)
			if !slices.ContainsFunc(known[dir], test.MatchString) {
				t.Errorf("%s: no test of %s matches %s", m.Name, dir, pattern)
			}
		}
	}
}

// testsOf returns the names of a package's tests.
func testsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

func TestMutationInAFunction(t *testing.T) {
	for _, test := range []struct {
		function, old string
		fails         string
	}{
		{function: "nameOf", old: "f.Recv == nil"},
		{function: "mutation.mutant", old: "from, to, where :="},
		{function: "", old: "nowhere" + "at all", fails: "its code occurs 0 times in main.go"},
		{function: "nameOf", old: "f.Name.Name", fails: "its code occurs 3 times in nameOf of main.go"},
		{function: "(*mutation).mutant", old: "from, to", fails: "main.go has no function (*mutation).mutant"},
	} {
		m := mutation{File: "main.go", Func: test.function, Old: test.old, New: "NEW"}
		got, err := m.mutant()
		if test.fails != "" {
			require.ErrorContains(t, err, test.fails)
			continue
		}
		require.NoError(t, err)
		require.Contains(t, got, "NEW")
	}
}
