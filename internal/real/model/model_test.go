package model

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

// TestModelsHold searches all states of the models.
func TestModelsHold(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute or two")
	}
	for name, c := range map[string]struct {
		file  string
		flags []string
	}{
		"line, a cut and a caller that gives up": {"line.pml", []string{"-DNODES=3", "-DCUTS=1", "-DENDS=0", "-DCANCELS=1"}},
		"line, a session ends":                   {"line.pml", []string{"-DNODES=3", "-DCUTS=0", "-DENDS=1", "-DCANCELS=0"}},
		"line of two, with all faults":           {"line.pml", []string{"-DNODES=2", "-DCUTS=1", "-DENDS=1", "-DCANCELS=1"}},
		"trust":                                  {"trust.pml", nil},
	} {
		t.Run(name, func(t *testing.T) {
			out := search(t, c.file, c.flags...)
			require.Contains(t, out, "errors: 0")
			// A search that was cut short finds no errors either.
			require.NotContains(t, out, "max search depth too small")
			require.NotContains(t, out, "Search not completed")
			t.Log(summary(out))
		})
	}
}

// TestPlantedBugsAreFound takes one protection after the other out of the models.
func TestPlantedBugsAreFound(t *testing.T) {
	const (
		two      = "assertion violated (( !(holds[0])"
		stranded = "invalid end state"
		left     = "unwanted" // the assertion that no node is left behind
		outlived = "assertion violated  !((expired&&"
	)
	cuts := []string{"-DNODES=3", "-DCUTS=1", "-DENDS=0", "-DCANCELS=1"}
	ends := []string{"-DNODES=3", "-DCUTS=0", "-DENDS=1", "-DCANCELS=0"}
	for _, c := range []struct {
		name   string
		file   string
		limits []string
		macros string
		finds  string
	}{
		{"a session forgets what it was told of", "line.pml", cuts, "-DFORGETS", two},
		{"a session forgets, and clears the markers of others", "line.pml", cuts, "-DFORGETS -DUNMARKS", two},
		{"a session forgets, and a holder believes a server that lags", "line.pml", cuts, "-DFORGETS -DUNMARKS -DNO_VERIFY", left},
		{"the expectation of a marker is not cleared", "line.pml", cuts, "-DNO_CLEARING", stranded},
		{"watches are not set again", "line.pml", cuts, "-DNO_REWATCH", stranded},
		{"a create is repeated blindly", "line.pml", cuts, "-DNO_SETTLE", stranded},
		{"no Sync before the node is looked for", "line.pml", cuts, "-DNO_SYNC", left},
		{"a caller that gives up leaves its node", "line.pml", cuts, "-DNO_WITHDRAW", left},
		{"no confirmation before a grant", "line.pml", ends, "-DNO_CONFIRM", two},
		{"trust lasts the whole timeout", "trust.pml", nil, "-DSHARE=12", outlived},
		{"a report is taken for earlier than it is", "trust.pml", nil, "-DREPORT=3", outlived},
		{"any answer of the leader renews trust", "trust.pml", nil, "-DNO_CARRIED", outlived},
		{"any answer renews trust", "trust.pml", nil, "-DANY_ANSWER", outlived},
		{"a leader need not prove a quorum", "trust.pml", nil, "-DNO_QUORUM", outlived},
		{"a sync proves a quorum", "trust.pml", nil, "-DSYNC_AGREES", outlived},
		{"a resumption proves a quorum", "trust.pml", nil, "-DRESUMPTION_AGREES", outlived},
		{"a session forgets the new leader", "trust.pml", nil, "-DFORGETS", outlived},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := search(t, c.file, append(c.limits, strings.Fields(c.macros)...)...)
			require.Contains(t, out, "errors: 1")
			require.Contains(t, out, c.finds)
		})
	}
}

// search has spin search all states of a model, up to the first error, and returns its report.
func search(t *testing.T, file string, flags ...string) string {
	t.Helper()
	requireSpin(t)
	model := suite.Got(filepath.Abs(file))(t)
	dir := t.TempDir()
	// spin writes a C program that searches (pan.c).
	run(t, dir, "spin", append(flags, "-a", model)...)
	run(t, dir, "cc", "-O2", "-DSAFETY", "-DNOFAIR", "-DCOLLAPSE", "-DMEMLIM=3500", "-DVECTORSZ=2048", "-o", "pan", "pan.c")
	return run(t, dir, "./pan", "-n", "-m2000000")
}

// requireSpin skips a test without spin, or fails it if that is required.
func requireSpin(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"spin", "cc"} {
		if _, err := exec.LookPath(tool); err == nil {
			continue
		} else if os.Getenv("ZKRECIPES_REQUIRE_REAL") == "1" {
			t.Fatalf("%s is required: install Debian's packages spin and gcc", tool)
		}
		t.Skipf("%s is not installed: Debian has packages spin and gcc", tool)
	}
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	require.NoError(t, err, "%s %s\n%s", name, strings.Join(args, " "), out)
	return string(out)
}

// summary returns the numbers of a report.
func summary(out string) string {
	lines := regexp.MustCompile(`(?m)^.*(states, stored|total actual memory|elapsed time|depth reached).*$`).FindAllString(out, -1)
	return "\n" + strings.Join(lines, "\n")
}

// TestEachCommandNamesAFunction holds the comments of the models against the source.
func TestEachCommandNamesAFunction(t *testing.T) {
	functions := make(map[string]bool)
	for _, dir := range []string{"../../../protocol/recipe", "../../../protocol/line", "../../session", "../../conn", "../../trust", "../../../recipestest/embedded"} {
		declare(t, functions, dir)
	}

	named := regexp.MustCompile(`^/\* go: (\S+) \*/$`)
	for _, file := range []string{"line.pml", "trust.pml"} {
		model := suite.Got(os.ReadFile(file))(t)
		last, commands := "", 0
		for i, line := range bytes.Split(model, []byte("\n")) {
			at := fmt.Sprintf("%s:%d", file, i+1)
			line := strings.TrimSpace(string(line))
			// Each command of a model stands for one function of the code, or for something that is
			// not ours.
			if strings.HasPrefix(line, ":: atomic") {
				commands++
				require.NotEmpty(t, last, "%s: no comment names a function, or says /* not ours */", at)
			}
			switch match := named.FindStringSubmatch(line); {
			case match != nil:
				require.True(t, functions[match[1]], "%s: there is no function %s", at, match[1])
				last = match[1]
			case line == "/* not ours */":
				last = line
			case !strings.HasPrefix(line, "#"):
				last = ""
			}
		}
		require.NotZero(t, commands)
	}
}

// function matches a function, or a method and its receiver's type.
var function = regexp.MustCompile(`(?m)^func (?:\(\w+ \*?(\w+)(?:\[\w+\])?\) )?(\w+)`)

// declare adds the functions of a directory, as package.Function or package.Type.Method.
func declare(t *testing.T, functions map[string]bool, dir string) {
	t.Helper()
	files := suite.Got(filepath.Glob(filepath.Join(dir, "*.go")))(t)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source := suite.Got(os.ReadFile(file))(t)
		for _, f := range function.FindAllStringSubmatch(string(source), -1) {
			name := filepath.Base(dir) + "." + f[1] + "." + f[2]
			functions[strings.Replace(name, "..", ".", 1)] = true // a function has no receiver
		}
	}
}
