package laws

import (
	"cmp"
	"flag"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

var (
	all    = flag.Bool("laws.all", false, "play every cell, and report lines of testdata that no cell meets")
	update = flag.Bool("laws.update", false, "play every cell, and write testdata")
	seed   = flag.Int("laws.seed", 1, "choose other cells")
	verbs  = flag.String("laws.verb", "", "play the verbs that match alone, and all of their cells")
)

// A Player plays laws: in virtual time, or against servers that run elsewhere.
type Player struct {
	rows    []Row
	connect string        // of servers that run elsewhere; empty for virtual time
	quiet   time.Duration // in which everything in the background ends
	cells   int           // of a law, at most
	known   bool          // testdata has the rows

	rehearsals sync.Map // *rehearsal by the verb's name
}

// With returns a player of rows that testdata does not have: only a "!" fails. A recipe of a test's
// own has all laws by it.
func (p *Player) With(rows ...Row) *Player {
	return &Player{rows: rows, connect: p.connect, quiet: p.quiet, cells: p.cells}
}

// server runs cell with a server of its own, or with those that run elsewhere.
func (p *Player) server(t *testing.T, cell func(*testing.T, *recipestest.Server), opts ...recipestest.Option) {
	t.Helper()
	if p.connect != "" {
		cell(t, recipestest.Attach(t, p.connect))
		return
	}
	// Which containers are left must not depend on when a minute is over: see reap.
	never := recipestest.WithConfigFunc(func(c *embedded.Config) { c.ContainerInterval = 1000 * time.Hour })
	recipestest.Bubble(t, cell, append(opts[:len(opts):len(opts)], never)...)
}

// reap has the server remove its empty containers.
func (s *Stage) reap() {
	if e := s.Server.Embedded(); e != nil {
		e.ReapContainers()
	}
}

// settled waits until nothing more happens at this moment.
func (s *Stage) settled() {
	if s.player.connect == "" {
		synctest.Wait()
	} else {
		time.Sleep(100 * time.Millisecond)
	}
}

// A law is true of every verb. Cells proposes what there is to be played of it.
type law struct {
	name, title string
	loose       bool // what comes of a cell depends on chance: a "!" alone must be known
	embedded    bool // needs the embedded server
	most        int  // cells of a sample, if a cell takes long
	alone       bool // it changes the clock of the whole process: a cell must not be parallel to others
	cells       func(*scene)
}

// A scene is a verb, cold or warm, and how it goes when nothing is broken. A law adds its cells.
type scene struct {
	*Player
	book  *book
	row   Row
	warm  bool
	calm  *rehearsal
	parts []part
	cells []cell // that came of its parts
}

// A part is one cell that may be played.
type part struct {
	*scene
	name string
	play func(*testing.T)
	rank uint64 // those with the lowest rank are chosen
}

// add proposes a cell. Its name is for the log and for the choice by chance.
func (sc *scene) add(name string, play func(*testing.T)) {
	sc.parts = append(sc.parts, part{sc, name, play, rank(sc.book.name, sc.verb(), name)})
}

// cell proposes a cell that begins when the call is ready.
func (sc *scene) cell(name string, in setting, play func(s *Stage, v Verb, base int)) {
	sc.add(name, func(t *testing.T) { sc.ready(t, in, play) })
}

// surely plays a part, and plays it again if the file does not know what came of it: goroutines of
// a verb may race, so a difference counts if it comes each time. What breaks the law counts at
// once.
func (p part) surely(t *testing.T) {
	before := len(p.cells)
	for try := range 5 {
		if try > 0 {
			p.cells = p.cells[:before]
			p.rehearse(t)
		}
		p.play(t)
		strange := slices.ContainsFunc(p.cells[before:], func(c cell) bool { return !p.book.knows(c) })
		breaks := slices.ContainsFunc(p.cells[before:], cell.breaks)
		if !strange || breaks || *update || !p.known {
			return
		}
	}
}

// rank is a number by chance, the same in each run with a seed.
func rank(names ...any) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, *seed)
	fmt.Fprint(h, names...)
	return h.Sum64() * 0x9e3779b97f4a7c15
}

// verb names the scene in a golden table.
func (sc *scene) verb() string {
	if sc.warm {
		return sc.row.Name + ", again"
	}
	return sc.row.Name
}

// law plays a law for each verb, cold and warm (after a call that has filled all caches).
func (p *Player) law(t *testing.T, l law) {
	if l.embedded && p.connect != "" {
		t.Skip("only with the embedded server")
	}
	b := &book{name: l.name, title: l.title, loose: l.loose}
	p.open(b)
	var scenes []*scene
	wanted := regexp.MustCompile(*verbs)
	for _, row := range p.rows {
		if !wanted.MatchString(row.Name) {
			continue
		}
		scenes = append(scenes, &scene{Player: p, book: b, row: row})
		if p.everything() || !testing.Short() { // a rehearsal costs as much as a cell
			scenes = append(scenes, &scene{Player: p, book: b, row: row, warm: true})
		}
	}

	if p.connect != "" { // a rehearsal takes long
		slices.SortFunc(scenes, func(a, b *scene) int { return cmp.Compare(rank(a.verb()), rank(b.verb())) })
		scenes = scenes[:min(p.cells, len(scenes))]
	}

	t.Run("rehearsals", func(t *testing.T) {
		p.each(t, scenes, true, func(t *testing.T, sc *scene) {
			if calm, ok := p.rehearsals.Load(sc.verb()); ok {
				sc.calm = calm.(*rehearsal)
				return
			}
			sc.calm = &rehearsal{failed: true}
			defer func() { p.rehearsals.Store(sc.verb(), sc.calm) }()
			sc.rehearse(t)
		})
	})

	var parts []part
	for _, sc := range scenes {
		if !sc.calm.failed {
			l.cells(sc)
			parts = append(parts, sc.parts...)
		}
	}
	chosen := make(map[*scene][]part)
	for _, part := range p.choose(parts, l.most) {
		chosen[part.scene] = append(chosen[part.scene], part)
	}
	t.Run("cells", func(t *testing.T) {
		scenes = slices.DeleteFunc(scenes, func(sc *scene) bool { return len(chosen[sc]) == 0 })
		p.each(t, scenes, !l.alone, func(t *testing.T, sc *scene) {
			for _, part := range chosen[sc] {
				t.Run(strings.ReplaceAll(part.name, " ", "_"), part.surely)
				if l.alone {
					clock.Reset()
				}
			}
		})
	})
	for _, sc := range scenes {
		b.cells = append(b.cells, sc.cells...)
	}
	t.Logf("%d cells of %d", len(b.cells), len(parts))
	p.compare(t, b)
}

// each calls f for each scene in a test of its own. In real time that is all at once: they wait for
// most of it.
func (p *Player) each(t *testing.T, scenes []*scene, parallel bool, f func(*testing.T, *scene)) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, sc := range scenes {
		run := func() {
			t.Run(sc.id(), func(t *testing.T) {
				if parallel && p.connect == "" {
					t.Parallel()
				}
				f(t, sc)
			})
		}
		if p.connect == "" {
			run()
		} else {
			all.Go(run)
		}
	}
}

// everything reports whether every cell is asked for.
func (p *Player) everything() bool { return *all || *update || *verbs != "" }

func (sc *scene) id() string { return strings.ReplaceAll(sc.verb(), " ", "_") }

// choose returns all parts, or in a shorter test a sample: one of each verb, and then as many as
// there is time for, but no more than most if that is not 0. A short test plays a few verbs of each
// law. It is the same in each run.
func (p *Player) choose(parts []part, most int) (chosen []part) {
	if p.everything() {
		return parts
	}

	parts = slices.SortedFunc(slices.Values(parts), func(a, b part) int { return cmp.Compare(a.rank, b.rank) })
	seen := make(map[string]bool)
	var others []part

	for _, part := range parts {
		if seen[part.row.Name] {
			others = append(others, part)
			continue
		}
		seen[part.row.Name] = true
		chosen = append(chosen, part)
	}

	switch {
	case p.connect != "":
		most = p.cells
	case testing.Short():
		most = min(20, cmp.Or(most/3, 20))
	default:
		chosen = append(chosen, others[:max(0, min(len(others), p.cells-len(chosen)))]...)
	}

	if most > 0 {
		chosen = chosen[:min(most, len(chosen))]
	}

	return chosen
}
