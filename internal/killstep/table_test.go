package killstep_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A remainder is a kind of node that a killed process leaves once its session has ended.
type remainder struct {
	recipe  string   // empty for all
	nodes   []string // in the form that general gives
	what    string
	remover string // which process, and when
	stays   bool   // longer than the next use of the recipe
}

// remainders are all of them. Of two that match, the first one counts.
var remainders = []remainder{
	{"barrier", []string{"<path>"}, "the barrier, set", "`Barrier.Remove` of any process", false},
	{
		"queue", []string{"<path>/qn-<sequence>", "<path>/entry-003-<sequence>", "<path>/item-<notes>", "<path>-dead/item-<notes>"},
		"an element, whole", "the consumer that takes or acknowledges it", false,
	},
	{
		"queue", []string{"<path>/zkrecipes/keys/key"}, "the key of an element that was offered",
		"a producer that offers with keys, after `WithKeyRetention`", true,
	},
	{"queue", []string{"<path>/zkrecipes/keys"}, "the directory of keys, one for each queue", "no process: it stays with the queue", true},
	{
		"once", []string{"<path>/done/key", "<path>/order/<token>-<sequence>"}, "the record that a key is done",
		"the call of `Once.Do` that exceeds `WithKeep`", true,
	},
	{"semaphore", []string{"<path>/<owner>-of-2-limit-<sequence>"}, "the new number of permits", "the next `Semaphore.Resize` replaces it", true},

	// These last as long as something below them.
	{"once", []string{"<path>", "<path>/done", "<path>/order"}, directory, directoryRemover, true},
	{"queue: offer with a key", []string{"<path>", "<path>/zkrecipes"}, directory, directoryRemover, true},
	{"", []string{
		"<path>", "<path>/a", "<path>/b", "<path>/c", "<path>/process", "<path>-items", "<path>-items/item", "<path>-dead", "<path>-dead/zkrecipes", "<path>-dead/zkrecipes/receipts",
		"<path>/zkrecipes", "<path>/zkrecipes/receipts", "<path>/zkrecipes/waiting",
	}, directory, directoryRemover, false},
}

const (
	directory        = "an empty directory"
	directoryRemover = "the servers, as it is a container, once it has had a child"
)

func remainderOf(o operation, node string) (remainder, bool) {
	i := slices.IndexFunc(remainders, func(r remainder) bool {
		return strings.HasPrefix(o.name, r.recipe) && slices.Contains(r.nodes, node)
	})
	if i < 0 {
		return remainder{}, false
	}
	return remainders[i], true
}

const (
	golden   = "testdata/left.txt"
	document = "../../docs/failure.md"
	begin    = "<!-- What follows is written by go test ./internal/killstep -update. -->\n"
	end      = "<!-- That is all. -->\n"
)

// compare compares what was left with the golden file, and that with the documentation.
func compare(t *testing.T, found map[string][]string) {
	t.Helper()
	lines := goldenLines(found)
	doc, err := os.ReadFile(document)
	require.NoError(t, err)
	head, rest, ok := strings.Cut(string(doc), begin)
	require.True(t, ok, document)
	_, tail, ok := strings.Cut(rest, end)
	require.True(t, ok, document)
	page := head + begin + "\n" + table(found) + "\n" + end + tail

	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(lines), 0o644))
		require.NoError(t, os.WriteFile(document, []byte(page), 0o644))
		return
	}
	was, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(was), lines, "what is left has changed: look at it, and use -update")
	require.Equal(t, string(doc), page, "docs/failure.md says something else: use -update")
}

// goldenLines returns a line for each operation and each node that it leaves.
func goldenLines(found map[string][]string) string {
	var b strings.Builder
	for _, o := range operations() {
		if len(found[o.name]) == 0 {
			fmt.Fprintf(&b, "%s\tnothing\n", o.name)
		}
		for _, node := range found[o.name] {
			r, _ := remainderOf(o, node)
			fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", o.name, node, r.what, r.remover)
		}
	}
	return b.String()
}

// table returns the table of the documentation: a row for each kind of remainder.
func table(found map[string][]string) string {
	var b strings.Builder
	b.WriteString("| left | nodes | after | removed by |\n|---|---|---|---|\n")
	clean := 0
	for _, o := range operations() {
		if len(found[o.name]) == 0 {
			clean++
		}
	}
	for i, r := range remainders {
		if slices.ContainsFunc(remainders[:i], func(before remainder) bool { return before.what == r.what }) {
			continue
		}
		var nodes, after []string
		for _, o := range operations() {
			for _, node := range found[o.name] {
				if other, _ := remainderOf(o, node); other.what != r.what {
					continue
				}
				if !slices.Contains(nodes, "`"+node+"`") {
					nodes = append(nodes, "`"+node+"`")
				}
				if !slices.Contains(after, o.name) {
					after = append(after, o.name)
				}
			}
		}
		if r.what == directory {
			nodes, after = []string{"the path, and directories below and beside it"}, []string{"the first use of a path"}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.what, strings.Join(nodes, ", "), strings.Join(after, "; "), r.remover)
	}
	fmt.Fprintf(&b, "\n%d operations were killed at each packet. %d of them leave nothing at all.\n", len(operations()), clean)
	return b.String()
}
