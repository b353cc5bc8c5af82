package laws

import (
	"context"
	"embed"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/value"
)

// A cell says what came of one fault.
type cell struct{ verb, fault, at, outcome string }

// A book collects the cells of a law.
type book struct {
	name, title string
	loose       bool // only outcomes that break the law must be in the file
	cells       []cell

	file  string
	old   []cell        // of the file
	known map[cell]bool // by it
}

// note notes the outcome of a cell. A fault must not contain ": ". At must not contain ", " and the
// outcome no arrow.
func (sc *scene) note(fault, at, outcome string) {
	if strings.Contains(outcome, "! ") { // one is enough
		outcome = "! " + strings.ReplaceAll(outcome, "! ", "")
	}
	sc.cells = append(sc.cells, cell{sc.verb(), fault, at, outcome})
}

// text has a line for each outcome of a verb, and says after the arrow when it comes. An outcome
// that breaks the law has a "!".
func (b *book) text() string {
	lines := make(map[string]map[string]map[string]bool) // verb and outcome, fault, at
	all := make(map[string]map[string]bool)              // verb and fault, at
	for _, c := range b.cells {
		put(inner(lines, c.verb+"\n    "+c.outcome), c.fault, c.at)
		put(all, c.verb+c.fault, c.at)
	}

	var out strings.Builder
	verb := ""

	for _, key := range slices.Sorted(maps.Keys(lines)) {
		name, outcome, _ := strings.Cut(key, "\n")
		if name != verb {
			verb = name
			out.WriteString("\n" + verb + "\n")
		}

		var when []string

		for _, fault := range slices.Sorted(maps.Keys(lines[key])) {
			at := lines[key][fault]
			where := strings.Join(slices.Sorted(maps.Keys(at)), ", ")
			if n := len(at); at[anything] || n > 1 && n == len(all[name+fault]) {
				where = anything
			}
			if where == "" {
				when = append(when, fault)
				continue
			}
			when = append(when, fault+": "+where)
		}
		out.WriteString(outcome + "  ⇐  " + strings.Join(when, "; ") + "\n")

	}

	return out.String()
}

func inner[V any](m map[string]map[string]V, key string) map[string]V {
	if m[key] == nil {
		m[key] = make(map[string]V)
	}
	return m[key]
}

func put(m map[string]map[string]bool, key, value string) { inner(m, key)[value] = true }

// racing matches verbs whose goroutines race: their packets come in another order each time. A run
// must know their outcomes, but not at which packet each comes.
var racing = regexp.MustCompile(`^(queue|doublebarrier)\.|^election\.Election\.Listen|^rwlock\.RWMutex\.RLock shared|^lock\.Mutex\.Lock in a local queue|^lock\..*(Revoked?(, again)?$|linger)|^line\.Line\.UpdateData|^once\.Once\.Do run elsewhere`)

//go:embed testdata
var testdata embed.FS

// anything stands for all packets of a verb.
const anything = "anything"

// open opens the law's file. In real time only outcomes that break the law must be known, of the
// verb, wherever the fault comes: times differ, and servers remove containers when they like.
func (p *Player) open(b *book) {
	b.loose = b.loose || p.connect != ""
	b.file = "testdata/" + b.name + ".txt"
	text, _ := testdata.ReadFile(b.file)
	b.old = parse(string(text))
	b.known = make(map[cell]bool)
	for _, c := range b.old {
		b.known[c] = true
		if p.connect != "" || racing.MatchString(c.verb) {
			b.known[c.anywhere()] = true
		}
	}
}

func (c cell) anywhere() cell { return cell{c.verb, c.fault, anything, c.outcome} }
func (c cell) breaks() bool   { return strings.HasPrefix(c.outcome, "!") }

// knows reports whether a cell may be: the file has it, or need not have it.
func (b *book) knows(c cell) bool {
	return b.known[c] || b.known[c.anywhere()] || b.loose && !c.breaks()
}

// compare compares the cells with the law's file, which must know each of them. If all cells were
// played, each line of the file must have been met, too: an expected failure that no longer fails
// is noticed. Verbs that are not in the file must not break the law.
func (p *Player) compare(t *testing.T, b *book) {
	t.Helper()
	if !p.known {
		for _, c := range b.cells {
			if c.breaks() {
				t.Errorf("%s: %s %s: %s", c.verb, c.fault, c.at, c.outcome)
			}
		}
		return
	}

	if *update {
		written, _ := os.ReadFile(b.file) // it may have changed since this was built
		b.keep(p, parse(string(written)))
		require.NoError(t, os.WriteFile(b.file, []byte(b.title+"\n"+b.text()), 0o644))
		return
	}

	met := make(map[cell]bool)
	for _, c := range b.cells {
		met[c], met[c.anywhere()] = true, true
		if !b.knows(c) {
			t.Errorf("not in %s: %s %s: %s: %s", b.file, c.verb, c.fault, c.at, c.outcome)
		}
	}

	for _, c := range b.old {
		if *all && *verbs == "" && !met[c] && !racing.MatchString(c.verb) && (!b.loose || c.breaks()) {
			t.Errorf("no cell meets this line of %s any more: %s %s: %s: %s", b.file, c.verb, c.fault, c.at, c.outcome)
		}
	}
}

// keep adds the old cells of verbs that were not played, and of those whose goroutines race: a
// single run does not show all that they do.
func (b *book) keep(p *Player, old []cell) {
	rows := make(map[string]bool)
	for _, row := range p.rows {
		rows[row.Name] = true
	}
	played := make(map[string]bool)
	for _, c := range b.cells {
		played[c.verb] = true
	}
	for _, c := range old {
		if row := strings.TrimSuffix(c.verb, ", again"); !rows[row] && b.name != "size" {
			continue // there is no such verb any more
		}
		if !played[c.verb] || racing.MatchString(c.verb) {
			b.cells = append(b.cells, c)
		}
	}
}

// parse reads what text has written.
func parse(text string) (cells []cell) {
	var verb string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		outcome, when, found := strings.Cut(line, "  ⇐  ")
		if !found {
			verb = line
			continue
		}
		for _, when := range strings.Split(when, "; ") {
			fault, ats, _ := strings.Cut(when, ": ")
			for _, at := range strings.Split(ats, ", ") {
				cells = append(cells, cell{verb, fault, at, strings.TrimPrefix(outcome, "    ")})
			}
		}
	}
	return cells
}

// known are the errors that have a name in the tables.
var known = []struct {
	err  error
	name string
}{
	{protocol.ErrUncertain, "uncertain"},
	{protocol.ErrLost, "lost"},
	{protocol.ErrReleased, "released"},
	{protocol.ErrClosed, "closed"},
	{context.Canceled, "canceled"},
	{lock.ErrLocked, "locked"},
	{lock.ErrNotRevocable, "not revocable"},
	{queue.ErrEmpty, "empty"},
	{queue.ErrFull, "full"},
	{election.ErrNoLeader, "no leader"},
	{election.ErrNotInLine, "not in line"},
	{doublebarrier.ErrFull, "round is full"},
	{value.ErrUnset, "not set"},
	{zk.ErrNoAuth, "no auth"},
	{zk.ErrNoNode, "no node"},
	{zk.ErrNodeExists, "node exists"},
	{zk.ErrBadVersion, "bad version"},
	{protocol.ErrThrottled, "throttled"},
	{protocol.ErrQuotaExceeded, "quota exceeded"},
	{protocol.ErrSessionFull, "session full"},
	{protocol.ErrTooLarge, "too large"},
	{zk.ErrNoServer, "no server"},
}

func class(err error) string {
	if err == nil {
		return "ok"
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "HANGS"
	}
	var names []string
	for _, k := range known {
		if errors.Is(err, k.err) {
			names = append(names, k.name)
		}
	}
	if names == nil {
		text := err.Error()
		return strings.TrimSpace(text[strings.LastIndex(text, ": ")+1:])
	}
	return strings.Join(names, ", ")
}

// calm returns err, unless it is an answer of a verb with which nothing is wrong.
func calm(err error) error {
	if b := (interface{ Busy() bool })(nil); errors.As(err, &b) {
		return nil
	}
	return err
}
