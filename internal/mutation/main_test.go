package main

import (
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
