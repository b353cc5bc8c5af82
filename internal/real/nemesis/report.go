package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

//go:embed report.html
var page string

// A report is one HTML file, and one file of histories beside it (one Round per line, in JSON).
type report struct {
	Seed      uint64
	Again     string // the flags that repeat the run
	Versions  []string
	Missing   map[string]string
	Began     time.Time
	Took      time.Duration
	Counts    map[string]*count // by recipe
	Faults    map[string]int    // by kind
	Undecided []string
	Rounds    []drawing
	Planted   []finding

	Failure string
	Error   string // of the nemesis itself

	histories *os.File // nil without a report
}

// A count counts the events of one recipe.
type count struct {
	OK, Failed, Unknown, Killed int
	Holds                       int
	Accepted, Refused           int
}

func newReport(o options, on ensemble) *report {
	r := &report{
		Seed: o.seed, Again: o.again(), Missing: make(map[string]string), Began: time.Now(),
		Counts: make(map[string]*count), Faults: make(map[string]int),
	}
	maps.Copy(r.Missing, on.Missing())
	maps.Copy(r.Missing, on.Beyond())
	r.Missing["the clock of a client process"] = "Go reads clocks without the C library, so libfaketime does not reach it; the simulations have clocks"

	r.Versions = []string{runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" || s.Key == "vcs.modified" {
				r.Versions = append(r.Versions, s.Key+" "+s.Value)
			}
		}
		for _, m := range info.Deps {
			if m.Path == "github.com/go-zookeeper/zk" {
				r.Versions = append(r.Versions, m.Path+" "+m.Version)
			}
		}
	}

	r.Versions = append(r.Versions, on.String())
	return r
}

// open begins the file of histories.
func (r *report) open(name string) (err error) {
	if name == "" {
		return nil
	}
	r.histories, err = os.Create(strings.TrimSuffix(name, ".html") + ".json")
	return err
}

func (r *report) close() error {
	if r.histories == nil {
		return nil
	}
	return r.histories.Close()
}

// add adds a round and the results of its checks.
func (r *report) add(round *Round, v Verdict) error {
	for _, o := range round.Ops {
		c := r.of(o.Recipe)
		switch o.Outcome {
		case OK:
			c.OK++
		case Failed:
			c.Failed++
		case Unknown:
			c.Unknown++
		default:
			c.Killed++
		}
		if o.certain() {
			c.Holds++
		}
	}

	for _, w := range round.Writes {
		if w.Accepted {
			r.of(w.Recipe).Accepted++
		} else {
			r.of(w.Recipe).Refused++
		}
	}

	for _, f := range round.Faults {
		r.Faults[f.Kind]++
	}
	r.Undecided = append(r.Undecided, v.Undecided...)

	if r.histories == nil {
		return nil
	}
	r.Rounds = append(r.Rounds, drawRound(round, v))
	return json.NewEncoder(r.histories).Encode(round)
}

func (r *report) of(recipe string) *count {
	if r.Counts[recipe] == nil {
		r.Counts[recipe] = &count{}
	}
	return r.Counts[recipe]
}

// Total returns the sum of all recipes.
func (r *report) Total() (t count) {
	for _, c := range r.Counts {
		t.OK, t.Failed, t.Unknown, t.Killed = t.OK+c.OK, t.Failed+c.Failed, t.Unknown+c.Unknown, t.Killed+c.Killed
		t.Holds, t.Accepted, t.Refused = t.Holds+c.Holds, t.Accepted+c.Accepted, t.Refused+c.Refused
	}
	return t
}

// Summary describes the run in one line.
func (r *report) Summary() string {
	t, faults := r.Total(), 0
	for _, n := range r.Faults {
		faults += n
	}
	s := fmt.Sprintf("%d operations, %d holds, %d writes to the fenced store of which %d were refused, %d faults",
		t.OK+t.Failed+t.Unknown+t.Killed, t.Holds, t.Accepted+t.Refused, t.Refused, faults)
	if len(r.Undecided) > 0 {
		s += fmt.Sprintf("; %d histories were not decided in time: %s", len(r.Undecided), strings.Join(r.Undecided, ", "))
	}
	return s
}

// write writes the page.
func (r *report) write(name, failure string, err error) error {
	r.Failure, r.Error = failure, text(err)
	r.Took = time.Since(r.Began).Round(time.Second)
	t, err := template.New("report").Parse(page)
	if err != nil {
		return err
	}

	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := t.Execute(f, r); err != nil {
		f.Close()
		return err
	}

	return f.Close()
}

// A drawing is the timeline of a round.
type drawing struct {
	Number   int
	From, To Stamp
	Ops      int
	Healed   float64 // on the x axis
	Failures []string
	Lanes    []lane
	Height   int
}

// A lane is a row: the faults, or the holds of one client.
type lane struct {
	Name string
	Y    int
	Bars []bar
	Dots []mark // refused writes
}

type bar struct {
	X, W  float64
	Class string
	Title string
}

type mark struct {
	X     float64
	Title string
}

const (
	width      = 1200.0
	laneHeight = 14
)

func drawRound(r *Round, v Verdict) drawing {
	d := drawing{Number: r.Number, From: r.From, To: r.To, Ops: len(r.Ops), Failures: v.Failures}
	x := func(s Stamp) float64 {
		return width * min(1, max(0, float64(s-r.From)/float64(max(1, r.To-r.From))))
	}
	d.Healed = x(r.Healed)

	// Faults can overlap, so each list of faults gets enough rows.
	var rows []lane
	var until []Stamp
	for _, f := range slices.SortedFunc(slices.Values(r.Faults), func(a, b Fault) int { return int(a.From - b.From) }) {
		i := slices.IndexFunc(until, func(s Stamp) bool { return s <= f.From })
		if i < 0 {
			i = len(rows)
			rows, until = append(rows, lane{Name: "faults"}), append(until, 0)
		}
		until[i] = f.To
		rows[i].Bars = append(rows[i].Bars, bar{x(f.From), max(1, x(f.To)-x(f.From)), "fault", f.String()})
	}

	lanes := make(map[string]*lane)
	of := func(recipe string, client int) *lane {
		name := fmt.Sprintf("%s %d", recipe, client)
		if lanes[name] == nil {
			lanes[name] = &lane{Name: name}
		}
		return lanes[name]
	}

	for _, o := range r.Ops {
		l := of(o.Recipe, o.Client)
		if !o.certain() {
			continue
		}
		b := bar{x(o.Begun), max(0.5, x(o.Held)-x(o.Begun)), o.Kind, o.String()}
		if o.Over == 0 {
			b.Class = "killed"
		}
		l.Bars = append(l.Bars, b)
	}

	for _, w := range r.Writes {
		if !w.Accepted {
			l := of(w.Recipe, w.Client)
			l.Dots = append(l.Dots, mark{x(w.At), fmt.Sprintf("refused at %v: token %d, after %d", w.At, w.Token, w.Highest)})
		}
	}

	for _, name := range slices.Sorted(maps.Keys(lanes)) {
		rows = append(rows, *lanes[name])
	}
	for i := range rows {
		rows[i].Y = i * laneHeight
	}

	d.Lanes, d.Height = rows, len(rows)*laneHeight
	return d
}
