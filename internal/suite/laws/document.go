package laws

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A table of a document has a row for each verb, or for several of which the same is true, and a
// column for each fault.
type documented struct {
	file, law string
	columns   []string
	of        func(c cell) (column, text string) // no column leaves the cell out
}

var documents = []documented{
	{"failure.md", "taken", []string{"node deleted", "session expired", "silence", "client closed"}, func(c cell) (column, text string) {
		return c.at, c.outcome
	}},
	{"costs.md", "rest", []string{"first call", "again", "giving back", "holding", "waiting"}, func(c cell) (column, text string) {
		verb, again := strings.CutSuffix(c.verb, ", again")
		text, _, _ = strings.Cut(c.outcome, ": ")
		switch {
		case c.fault == "a call" && again:
			return "again", text
		case c.fault == "a call" && verb == c.verb:
			return "first call", text
		}
		return c.fault, text
	}},
}

// Documents compares the tables of documents with testdata, from which -laws.update writes them.
func Documents(t *testing.T) {
	for _, d := range documents {
		golden, err := os.ReadFile("testdata/" + d.law + ".txt")
		require.NoError(t, err)
		file := "../../../docs/" + d.file
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		between := regexp.MustCompile(`(?s)(<!-- laws:` + d.law + ` -->\n).*?(<!-- end -->)`)
		found := between.FindStringSubmatch(string(text))
		require.NotNil(t, found, "%s has no place for %s", d.file, d.law)
		want := strings.Replace(string(text), found[0], found[1]+"\n"+d.table(parse(string(golden)))+"\n"+found[2], 1)
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
		} else if want != string(text) {
			t.Errorf("%s: its table laws:%s is not that of testdata: go test ./internal/suite/laws -run Documents -laws.update", d.file, d.law)
		}
	}
}

// table renders the cells of a law. Verbs with equal rows share one.
func (d documented) table(cells []cell) string {
	rows := make(map[string]map[string]string) // verb, column
	for _, c := range cells {
		column, text := d.of(c)
		if !slices.Contains(d.columns, column) {
			continue
		}
		verb := strings.TrimSuffix(c.verb, ", again")
		text = strings.TrimPrefix(text, "! ")
		if had := inner(rows, verb)[column]; had != "" && had != text {
			text = had + ", or " + text
		}
		rows[verb][column] = text
	}
	verbs := make(map[string][]string) // row
	for _, verb := range slices.Sorted(maps.Keys(rows)) {
		line := ""
		for _, column := range d.columns {
			line += " " + rows[verb][column] + " |"
		}
		verbs[line] = append(verbs[line], verb)
	}

	var b strings.Builder
	b.WriteString("| | " + strings.Join(d.columns, " | ") + " |\n" + strings.Repeat("|---", len(d.columns)+1) + "|\n")
	lines := slices.SortedFunc(maps.Keys(verbs), func(x, y string) int { return strings.Compare(verbs[x][0], verbs[y][0]) })
	for _, line := range lines {
		b.WriteString("| " + strings.Join(verbs[line], ", ") + " |" + line + "\n")
	}
	return b.String()
}
