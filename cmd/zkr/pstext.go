package main

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/plain"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
)

// writeTable writes a line for each contender, and one for each place without any.
func writeTable(w io.Writer, places []*survey.Place) error {
	var t table
	row := func(cells ...string) { t = append(t, cells) }
	row("PATH", "RECIPE", "STATE", "WHO", "SESSION", "IN LINE SINCE", "HELD SINCE", "NODE")
	for _, asked := range places {
		for p := range asked.All() {
			at := []string{printable(p.Path), string(p.Recipe)}
			row := func(cells ...string) { row(append(at[:2:2], cells...)...) }

			// Directories and what may be nothing are shown if they were asked for.
			if (!slices.Contains([]survey.Recipe{survey.Directory, survey.Leaf, survey.Value}, p.Recipe) || p == asked) && (len(p.Contenders) == 0 || p.Entries != nil) {
				row(summary(p))
			}
			for _, c := range p.Contenders {
				row(state(c), who(c), sessionID(c.Session), moment(c.Since), heldSince(c), printable(c.Node)+more(c))
			}
			for _, s := range p.Unknown {
				row("unknown", "", "", moment(s.Since), "", printable(s.Node))
			}
			for _, note := range notes(p) {
				row("note: " + note)
			}
		}
	}
	return t.write(w)
}

// A table is rows of cells, each of which has one at least. Cells are aligned, but for the last one
// of a row that has something in it, and for long ones: neither must widen the column.
type table [][]string

const maxCell = 60

func (t table) write(w io.Writer) error {
	var widths []int
	for i, row := range t {
		for len(row) > 1 && row[len(row)-1] == "" {
			row = row[:len(row)-1]
		}
		t[i] = row
		for j, cell := range row[:len(row)-1] {
			if j == len(widths) {
				widths = append(widths, 0)
			}
			if width := utf8.RuneCountInString(cell); width <= maxCell {
				widths[j] = max(widths[j], width)
			}
		}
	}

	var b strings.Builder
	for _, row := range t {
		last := len(row) - 1
		for i, cell := range row[:last] {
			fmt.Fprintf(&b, "%-*s  ", widths[i], cell)
		}
		fmt.Fprintln(&b, row[last])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// moment returns a time as text, or a hyphen if the servers hide it.
func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}

// heldSince says since when a contender holds, if it does.
func heldSince(c survey.Contender) string {
	switch {
	case c.State != survey.Holds:
		return ""
	case c.Held.IsZero():
		return "unknown"
	}
	return moment(c.Held)
}

// writeTree writes a place and what is below it as a tree.
func writeTree(w io.Writer, p *survey.Place) {
	fmt.Fprintln(w, printable(p.Path)+heading(p))
	writeBranches(w, p, "")
}

func writeBranches(w io.Writer, p *survey.Place, indent string) {
	var leaves []string
	for _, c := range p.Contenders {
		leaves = append(leaves, strings.Join([]string{
			state(c), cmp.Or(who(c), sessionID(c.Session)), times(c), printable(c.Node) + more(c),
		}, "  "))
	}

	for _, s := range p.Unknown {
		leaves = append(leaves, "unknown  "+printable(s.Node))
	}

	for _, note := range notes(p) {
		leaves = append(leaves, "note: "+note)
	}

	last := len(leaves) + len(p.Below) - 1
	branch := func(i int) (now, below string) {
		if i == last {
			return indent + "└── ", indent + "    "
		}
		return indent + "├── ", indent + "│   "
	}

	for i, leaf := range leaves {
		now, _ := branch(i)
		fmt.Fprintln(w, now+leaf)
	}

	for i, child := range p.Below {
		now, below := branch(len(leaves) + i)
		fmt.Fprintln(w, now+printable(path.Base(child.Path))+heading(child))
		writeBranches(w, child, below)
	}
}

// times says since when a contender is there.
func times(c survey.Contender) string {
	switch c.State {
	case survey.Holds:
		return "in line since " + moment(c.Since) + ", held since " + heldSince(c)
	case survey.Waits:
		return "in line since " + moment(c.Since)
	}
	return "since " + moment(c.Since)
}

// heading says what a place is, after its name.
func heading(p *survey.Place) string {
	if p.Recipe == survey.Directory {
		return ""
	}
	return "  " + string(p.Recipe) + ": " + summary(p)
}

// summary says in what state a place is.
func summary(p *survey.Place) string {
	holders, waiters := p.Holders(), len(p.Contenders)-p.Holders()
	switch p.Recipe {
	case survey.Value:
		return "data, such as a value or configuration"
	case survey.Leaf:
		return "a barrier that is set, or nothing"
	case survey.Barrier:
		return "set"
	case survey.Empty:
		return "not in use"
	case survey.Missing:
		return "there is no such node"
	case survey.Hidden:
		return "may not be listed"
	case survey.Directory:
		return fmt.Sprintf("%d below", len(p.Below))
	case survey.Queue:
		text := plural(p.Entries.Length, "element")
		if p.Entries.Reserved > 0 {
			text += fmt.Sprintf(", %d reserved", p.Entries.Reserved)
		}
		if !p.Entries.Oldest.IsZero() {
			text += ", oldest " + moment(p.Entries.Oldest)
		}
		return text
	case survey.Group:
		return plural(holders, "member")
	case survey.DoubleBarrier:
		return fmt.Sprintf("%d inside, %d wait for %d", holders, waiters, p.Permits)
	case survey.Once:
		return fmt.Sprintf("%s done, %d run, %d wait", plural(p.Done, "key"), holders, waiters)
	case survey.Semaphore:
		return fmt.Sprintf("%d of %d held, %d wait", holders, p.Permits, waiters)
	}
	return fmt.Sprintf("%d hold, %d wait", holders, waiters)
}

// plural returns a number of things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// state says what a contender has, and of what.
func state(c survey.Contender) string {
	if c.Mode == "" {
		return string(c.State)
	}
	return string(c.State) + " " + printable(c.Mode)
}

// who says who a contender is: as its data say, or else its data, or else its library.
func who(c survey.Contender) string {
	text := c.Owner.String()
	switch {
	case text != "" && !c.Owner.AskedBack.IsZero():
		return printable(text) + " (asked back)"
	case text != "":
		return printable(text)
	case len(c.Data) > 0:
		return printable(plain.Cut(string(c.Data), 40))
	case c.Library != survey.Ours && c.Library != survey.Unknown:
		return "(" + string(c.Library) + ")"
	}
	return ""
}

// more says what else is known of a contender.
func more(c survey.Contender) (text string) {
	if c.Orphan != "" {
		text = "  (orphan: " + harmless(c.Orphan) + ")"
	}
	if c.Client != nil {
		text += "  (" + alive(c.Client) + ")"
	}
	return text
}

// notes are what else there is to say of a place.
func notes(p *survey.Place) (all []string) {
	for _, note := range p.Notes {
		all = append(all, harmless(note))
	}

	if n := len(p.Unread); n > 0 {
		all = append(all, fmt.Sprintf("unknown: %s here not read, see --nodes", plural(n, "node")))
	}
	return all
}
