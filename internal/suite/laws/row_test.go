package laws

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// silent are the verbs that send nothing, so that nothing can go wrong with them.
var silent = []string{
	"recipe.Cancelled", "recipe.Ended", "recipe.Linger", "recipe.Recipe.ValidateCall", "recipe.Recipe.Waited",
	"recipe.Recipe.Waiting", "recipe.Watch.AfterChange",
}

// Each exported verb has a row, which has its name and then, perhaps, what is special.
func TestTableHasEachVerb(t *testing.T) {
	rows := make(map[string]bool)
	names := make(map[string]bool)
	for _, row := range table {
		require.False(t, names[row.Name], "%s is there twice", row.Name)
		verb, _, _ := strings.Cut(row.Name, " ")
		rows[verb], names[row.Name] = true, true
	}
	all := []string{"lock.Lease.Revoked"}
	for _, dir := range []string{
		"barrier", "doublebarrier", "election", "group", "lock", "once", "protocol", "protocol/line", "protocol/recipe", "queue", "rwlock", "semaphore", "value",
	} {
		all = append(all, exportedVerbs(t, dir)...)
	}
	for _, verb := range all {
		if !slices.Contains(silent, verb) {
			require.True(t, rows[verb], "%s has no row in the table", verb)
		}
		delete(rows, verb)
	}
	require.Empty(t, rows, "rows of verbs that do not exist")
}

// takesContext matches an exported function or method of the API that takes a context first.
var takesContext = regexp.MustCompile(`(?m)^func (?:\(\w+ \*?(\w+)\) )?(\w+)(?:\[[^(]*\])?\(\s*\w+ context\.Context`)

// exportedVerbs returns the exported functions and methods of a package that take a context first,
// as in "lock.Mutex.Lock", from the record of its API. A method Context only derives one.
func exportedVerbs(t *testing.T, dir string) (verbs []string) {
	text, err := os.ReadFile("../../../api/" + strings.ReplaceAll(dir, "/", "-") + ".txt")
	require.NoError(t, err)
	for _, m := range takesContext.FindAllStringSubmatch(string(text), -1) {
		if m[2] == "Context" {
			continue
		}
		verb := path.Base(dir) + "." + m[1] + "." + m[2]
		verbs = append(verbs, strings.Replace(verb, "..", ".", 1)) // a function has no receiver
	}
	require.NotEmpty(t, verbs, dir)
	return verbs
}
