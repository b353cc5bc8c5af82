package suite_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A program that imports a recipe must not link the test kit, nor another recipe.
func TestRecipesLinkNoTestDependencies(t *testing.T) {
	t.Parallel()
	const module = "github.com/zkrecipes/zkrecipes/"
	kernel := []string{"github.com/go-zookeeper/zk", "github.com/cenkalti/backoff/v4", module + "protocol", module + "protocol/recipe", module + "internal/clock", module + "internal/conn", module + "internal/layout", module + "internal/pace", module + "internal/session", module + "internal/trust", module + "internal/zkwire"}
	for pkg, more := range map[string][]string{
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
	} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}",
			module+pkg).Output()
		require.NoError(t, err)
		allowed := append([]string{module + pkg}, kernel...)
		for _, m := range more {
			allowed = append(allowed, module+m)
		}
		require.Subset(t, allowed, strings.Fields(string(out)), pkg)
	}
}
