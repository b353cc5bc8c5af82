package main

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/plain"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
)

// writeTable writes a line for each contender, and a line for each place without contenders.
func writeTable(w io.Writer, places []*survey.Place) error {
	var t table
	row := func(cells ...string) { t = append(t, cells) }
	row("PATH", "RECIPE", "STATE", "WHO", "SESSION", "IN LINE SINCE", "HELD SINCE", "NODE")
	for _, asked := range places {
		for p := range asked.All() {
			at := []string{printable(p.Path), p.Kind()}
			row := func(cells ...string) { row(append(at[:2:2], cells...)...) }

			// Show directories and possible leftovers only if the user named them.
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

// heldSince returns the time since when a contender holds.
func heldSince(c survey.Contender) string {
	switch {
	case c.State != survey.Holds:
		return ""
	case c.Held.IsZero():
		return "unknown"
	}
	return moment(c.Held)
}

// writeTree writes a place and everything below it as a tree.
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

	// The last branch has another corner.
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

// times returns text about the times of a contender.
func times(c survey.Contender) string {
	switch c.State {
	case survey.Holds:
		return "in line since " + moment(c.Since) + ", held since " + heldSince(c)
	case survey.Waits:
		return "in line since " + moment(c.Since)
	}
	return "since " + moment(c.Since)
}

// heading returns the text after a place's name.
func heading(p *survey.Place) string {
	if p.Recipe == survey.Directory {
		return ""
	}
	return "  " + p.Kind() + ": " + summary(p)
}

// summary describes the state of a place.
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

// state returns a contender's state, and the kind of access if there are several.
func state(c survey.Contender) string {
	if c.Mode == "" {
		return string(c.State)
	}
	return string(c.State) + " " + printable(c.Mode)
}

// who returns the owner in a contender's data. Without an owner it returns the data, or else the
// library.
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

// more returns other facts about a contender.
func more(c survey.Contender) (text string) {
	if c.Orphan != "" {
		text = "  (orphan: " + harmless(c.Orphan) + ")"
	}

	if c.Client != nil {
		text += "  (" + alive(c.Client) + ")"
	}
	return text
}

// notes returns the notes about a place.
func notes(p *survey.Place) (all []string) {
	for _, note := range p.Notes {
		all = append(all, harmless(note))
	}

	// Say how much is missing.
	if n := len(p.Unread); n > 0 {
		all = append(all, fmt.Sprintf("unknown: %s here not read, see --nodes", plural(n, "node")))
	}
	return all
}

// alive says whether a contender's client is alive, and when its node goes if not.
func alive(c *survey.Client) string {
	var text string
	switch {
	case c.Unknown != "":
		return "whether it is alive is unknown: " + harmless(c.Unknown)
	case c.Address == "":
		text = "no server has a connection of it"
	case c.Heard.IsZero():
		text = "connected from " + c.Address
	default:
		text = fmt.Sprintf("heard %v ago from %s", time.Since(c.Heard).Round(100*time.Millisecond), c.Address)
	}

	if c.Ends.IsZero() {
		return text
	}
	return text + "; without a word it goes by " + moment(c.Ends)
}
