// Mutants finds protections that no test would miss. It changes the code by rule and expects a test
// to fail. It leaves out each Sync and each statement (if the code still compiles). It lets each
// expected version be any version, and drops each check of a transaction. It makes each condition
// true and false. It makes each comparison off by one, and each integer constant one more and one
// less.
//
//	go run ./internal/real/mutants -for 10m                a sample, another one each day
//	go run ./internal/real/mutants -run '^lock ' -for 0    all mutants of package lock
//	go run ./internal/real/mutants -run 'no sync' -for 0   mutants whose names match
//	go run ./internal/real/mutants -list                   their names
//	go run ./internal/real/mutants -known -for 10m         a sample of the mutants killed before
//	go run ./internal/real/mutants -planted -for 0         the bugs of package planted
//
// It runs the tests of the mutant's package that reach the mutant, and then the tests of the
// packages that -tests names. If all of them pass, the mutant survives. A test that takes far too
// long counts as failed. So on a busy machine this command can miss survivors, but it never reports
// a false one. Tests run on the embedded server, and with -short unless they are known to kill. The
// working tree isn't changed: the go command gets the changed files as an overlay.
//
// A mutant's name has its package, function and text, but no line. Two files have such names, each
// with a remark. Mutants in accepted.txt may survive (for the reason given), and aren't
// tried. Mutants in killed.txt were killed by the test given, which runs first from
// then on. -record writes that file. With -known, a survivor is an error (status 1), and so is a
// name that is no mutant any more. -record drops such names from both files (and so does -list with
// it).
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/real/mutants/planted"
)

// A trial tries mutants.
type trial struct {
	root     string
	match    *regexp.Regexp
	limit    time.Duration
	random   *rand.Rand
	jobs     int
	tests    []string          // packages whose tests run after the mutant's own
	accepted map[string]string // reasons by mutant: these aren't tried
	killed   map[string]string // tests by mutant
	known    bool              // only mutants that were killed before

	mu        sync.Mutex
	exist     map[string]bool // all mutants of the packages that were read
	read      map[string]bool // the packages there are, and whether they were read
	tried     int
	survivors int
	err       error
}

func main() {
	today, _ := strconv.ParseUint(time.Now().Format("20060102"), 10, 64)
	run := flag.String("run", "", "only mutants whose names match this regular expression")
	list := flag.Bool("list", false, "print names and do nothing")
	limit := flag.Duration("for", 10*time.Minute, "how long to try mutants, or 0 for all of them")
	seed := flag.Uint64("seed", today, "chooses the sample")
	jobs := flag.Int("jobs", runtime.NumCPU(), "how many mutants to try at a time")
	tests := flag.String("tests", "internal/suite/laws", "packages whose tests run after the mutant's own, with commas between")
	record := flag.Bool("record", false, "add what is killed to that file")
	known := flag.Bool("known", false, "only mutants in that file; it is an error if one survives")
	bugs := flag.Bool("planted", false, "plant the listed bugs instead, those whose names match")
	flag.Parse()

	t := &trial{
		limit: *limit, random: rand.New(rand.NewPCG(*seed, 0)), jobs: *jobs, known: *known,
		tests: strings.FieldsFunc(*tests, func(r rune) bool { return r == ',' }),
		exist: make(map[string]bool), read: make(map[string]bool),
	}
	// What earlier runs found: which test killed which mutant, and which mutants may survive.
	if t.root, t.err = planted.Root(); t.err == nil {
		t.match, t.err = regexp.Compile(*run)
	}
	killed := filepath.Join(t.root, "internal/real/mutants/killed.txt")
	accepted := filepath.Join(t.root, "internal/real/mutants/accepted.txt")
	if t.err == nil {
		t.killed, t.err = read(killed)
	}
	if t.err == nil {
		t.accepted, t.err = read(accepted)
	}

	// Plant the listed bugs, or list the mutants, or try them.
	var stale map[string]bool
	switch {
	case t.err != nil:
	case *bugs:
		t.survivors = t.findBugs()
	case *list:
		t.all(func(m mutation) { fmt.Println(m.name()) })
	default:
		fmt.Printf("seed %d\n", *seed)
		t.all(nil)
		fmt.Printf("%d mutants were tried, %d have survived\n", t.tried, t.survivors)
	}
	// Code changes, so some names may belong to no mutant any more.
	if t.err == nil && !*bugs {
		stale = t.tellStale()
	}
	if t.err == nil && *record {
		t.err = cmp.Or(write(killed, t.killed), drop(accepted, stale))
	}

	switch {
	case t.err != nil:
		fmt.Fprintln(os.Stderr, t.err)
		os.Exit(2)
	case t.survivors > 0 && (*known || *bugs), len(stale) > 0 && *known && !*record:
		os.Exit(1)
	}
}

// least is how long the mutants of a package are tried: with less, building tests would hardly pay.
const least = 2 * time.Minute

// all tries mutants until the time has run out. If list is given, it gets them instead.
func (t *trial) all(list func(mutation)) {
	all, err := subjects(t.root)
	t.fail(err)
	for _, s := range all {
		t.read[s.dir] = false
	}
	// In random order, so that short runs aren't always about the same packages.
	t.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if t.known {
		// A package without a known mutant isn't worth loading.
		all = slices.DeleteFunc(all, func(s *subject) bool {
			for name := range t.killed {
				if packageOf(name) == s.dir && t.match.MatchString(name) {
					return false
				}
			}
			return true
		})
	}

	end := time.Now().Add(t.limit)
	for done, s := range all {
		if list == nil && t.limit > 0 && time.Now().After(end) {
			return
		}
		mutants, files, err := s.mutants()
		if err != nil {
			t.fail(fmt.Errorf("%s: %w", s.dir, err))
			return
		}
		mutants = t.choose(s, mutants)
		if list != nil {
			for _, m := range mutants {
				list(m)
			}
		} else if len(mutants) > 0 {
			// Each package gets its part of the time that is left, and what others have not used.
			left := time.Until(end)
			part := left / time.Duration(len(all)-done)
			if !t.known {
				part = min(left, max(part, least))
			}
			t.try(s, mutants, files, time.Now().Add(part))
		}
	}
}

// choose returns those mutants of a package that are to be tried.
func (t *trial) choose(s *subject, mutants []mutation) (chosen []mutation) {
	t.read[s.dir] = true
	for _, m := range mutants {
		name := m.name()
		t.exist[name] = true
		_, accepted := t.accepted[name]
		_, killed := t.killed[name]
		if t.match.MatchString(name) && !accepted && (killed || !t.known) {
			chosen = append(chosen, m)
		}
	}
	return chosen
}

// try tries mutants of a package in random order.
func (t *trial) try(s *subject, mutants []mutation, files map[string][]byte, end time.Time) {
	u, err := s.suite(t.root, t.tests, files, t.jobs)
	if err != nil {
		t.fail(err)
		return
	}
	defer u.close()
	t.random.Shuffle(len(mutants), func(i, j int) { mutants[i], mutants[j] = mutants[j], mutants[i] })
	each(t.jobs, mutants, func(m mutation) {
		if t.limit == 0 || time.Now().Before(end) {
			t.one(u, m)
		}
	})
}

// one tries one mutant.
func (t *trial) one(u *suite, m mutation) {
	t.mu.Lock()
	known := t.killed[m.name()]
	t.mu.Unlock()

	by, passed, err := u.try(m, known)
	if err != nil {
		t.fail(err)
		return
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	t.tried++
	if by != "" {
		t.killed[m.name()] = by
		fmt.Printf("killed by %s: %s\n", by, m.name())
		return
	}

	t.survivors++
	// A survivor is no longer known as killed, so -record drops its line.
	delete(t.killed, m.name())
	fmt.Printf("%s:1: SURVIVED %d tests that reach it: %s\n", m.place, passed, m.name())
}

// tellStale prints names in the files that no mutant has any more, drops them, and returns them.
// Of a package that was not read nothing is known, unless there is no such package any more.
func (t *trial) tellStale() map[string]bool {
	stale := make(map[string]bool)
	for _, names := range []map[string]string{t.accepted, t.killed} {
		for _, name := range slices.Sorted(maps.Keys(names)) {
			dir := packageOf(name)
			if read, there := t.read[dir]; read && !t.exist[name] || !there {
				fmt.Fprintf(os.Stderr, "no such mutant any more: %s\n", name)
				delete(names, name)
				stale[name] = true
			}
		}
	}
	return stale
}

// drop removes the lines of a file that are about these mutants.
func drop(file string, names map[string]bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var left strings.Builder
	for line := range strings.Lines(string(text)) {
		if name, _, _ := strings.Cut(line, "  # "); !names[name] {
			left.WriteString(line)
		}
	}
	return os.WriteFile(file, []byte(left.String()), 0o644)
}

func (t *trial) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = cmp.Or(t.err, err)
}

// packageOf returns the directory that a mutant's name begins with.
func packageOf(name string) string {
	dir, _, _ := strings.Cut(name, " ")
	return dir
}

// read returns the remarks of a file on mutants. A file that doesn't exist has none.
func read(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	remarks := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, remark, found := strings.Cut(line, "  # ")
		if !found {
			return nil, fmt.Errorf("%s has no remark on %q", file, name)
		}
		remarks[name] = remark
	}

	return remarks, nil
}

// write writes which tests have killed which mutants.
func write(file string, remarks map[string]string) error {
	var text strings.Builder
	fmt.Fprintln(&text, "# Mutants, and which test has killed each. Written with -record.")
	for _, name := range slices.Sorted(maps.Keys(remarks)) {
		fmt.Fprintf(&text, "%s  # %s\n", name, remarks[name])
	}
	return os.WriteFile(file, []byte(text.String()), 0o644)
}
