package suite_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }

// A program that imports a recipe must not link the test kit, nor another recipe.
func TestRecipesLinkNoTestDependencies(t *testing.T) {
	t.Parallel()
	const module = "github.com/zkrecipes/zkrecipes/"
	kernel := []string{"github.com/go-zookeeper/zk", "github.com/cenkalti/backoff/v4", module + "protocol", module + "protocol/recipe", module + "internal/clock", module + "internal/conn", module + "internal/layout", module + "internal/pace", module + "internal/session", module + "internal/trust", module + "internal/zkwire"}
	more := map[string][]string{
		"protocol":        nil,
		"protocol/recipe": nil,
		"protocol/line":   nil,
		"lock":            {"protocol/line"},
		"rwlock":          {"protocol/line"},
		"election":        {"protocol/line"},
		"semaphore":       {"protocol/line"},
		"group":           {"protocol/line"},
		"once":            {"protocol/line"},
		"queue":           {"protocol/line", "internal/batch"},
		"barrier":         nil,
		"value":           nil,
		"doublebarrier":   {"protocol/line"},
	}
	list := []string{"list", "-f", "{{.ImportPath}} {{join .Deps \" \"}}"}
	for pkg := range more {
		list = append(list, module+pkg)
	}
	out := suite.Got(exec.CommandContext(t.Context(), "go", list...).Output())(t)

	for line := range strings.Lines(string(out)) {
		linked := strings.Fields(line)
		pkg := strings.TrimPrefix(linked[0], module)
		allowed := append([]string{linked[0]}, kernel...)
		for _, m := range more[pkg] {
			allowed = append(allowed, module+m)
		}
		linked = slices.DeleteFunc(linked, func(path string) bool { // the standard library
			host, _, _ := strings.Cut(path, "/")
			return !strings.Contains(host, ".")
		})
		require.Subset(t, allowed, linked, pkg)
	}
}
