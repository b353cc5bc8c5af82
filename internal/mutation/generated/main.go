// Generated finds protections that no test would miss. It makes mutants of the code by rule, and
// runs the tests that reach them: each Sync is left out, each expected version becomes any, each
// check of a transaction is dropped, each branch of an error is not taken, each call whose result
// is not used is left out, each comparison is off by one.
//
//	go run ./internal/mutation/generated -for 10m              a random slice
//	go run ./internal/mutation/generated -run lock -for 0      all mutants of lock
//	go run ./internal/mutation/generated -run 'barrier/.*sync' those whose names match
//	go run ./internal/mutation/generated -list                 their names
//
// A mutant that passes all tests that reach it survives. It is an error unless accepted.txt has it,
// with the reason why it may: then it is not tried, unless -again is given. A test that takes far
// too long has noticed, too. So a busy machine makes this tool miss survivors, and never report one
// that is none. Tests run on the embedded server, without the race detector. The working tree is
// not changed: the go command gets the changed files as an overlay.
//
// The file caught.txt names a test for each mutant that was caught before, which is run first. So
// mutants of code that has not changed cost one test each. With -record the file is written, and
// with -known only these mutants are tried.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// A trial tries mutants.
type trial struct {
	match    *regexp.Regexp
	limit    time.Duration
	random   *rand.Rand
	parallel int
	accepted map[string]string // reasons by mutant: they are not tried
	caught   map[string]string // tests by mutant
	known    bool              // only those that were caught before

	mu        sync.Mutex
	tried     int
	survivors int
	err       error
}

func main() {
	run := flag.String("run", "", "only mutants whose names match this regular expression")
	list := flag.Bool("list", false, "print names and do nothing")
	limit := flag.Duration("for", 10*time.Minute, "how long to try mutants, or 0 for all of them")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "chooses the slice")
	parallel := flag.Int("parallel", runtime.GOMAXPROCS(0), "how many mutants to try at a time")
	record := flag.Bool("record", false, "write down which test has caught which mutant")
	known := flag.Bool("known", false, "only mutants that were caught before")
	again := flag.Bool("again", false, "try accepted mutants, too")
	flag.Parse()

	t := &trial{limit: *limit, random: rand.New(rand.NewPCG(*seed, 0)), parallel: *parallel, known: *known}
	if t.match, t.err = regexp.Compile(*run); t.err == nil {
		t.accepted, t.err = read(acceptedFile)
	}
	if t.err == nil {
		t.caught, t.err = read(caughtFile)
	}
	if *again {
		t.accepted = nil
	}

	switch {
	case t.err != nil:
	case *list:
		t.err = t.list()
	default:
		fmt.Printf("seed %d\n", *seed)
		t.all()
		fmt.Printf("%d mutants were tried, %d have survived\n", t.tried, t.survivors)
		if *record {
			t.err = cmp.Or(t.err, write(caughtFile, t.caught))
		}
	}

	switch {
	case t.err != nil:
		fmt.Fprintln(os.Stderr, t.err)
		os.Exit(2)
	case t.survivors > 0:
		os.Exit(1)
	}
}

// list prints the names of mutants.
func (t *trial) list() error {
	for _, s := range subjects {
		mutants, _, err := s.mutants(t.match)
		if err != nil {
			return err
		}
		for _, m := range mutants {
			fmt.Println(m.name())
		}
	}
	return nil
}

// all tries mutants of all subjects until the time is over.
func (t *trial) all() {
	wanted := slices.DeleteFunc(slices.Clone(subjects), func(s subject) bool {
		mutants, _, err := t.mutants(s)
		return err == nil && len(mutants) == 0
	})
	t.random.Shuffle(len(wanted), func(i, j int) { wanted[i], wanted[j] = wanted[j], wanted[i] })

	// Each subject gets its part of the time that is left, and what others have not used.
	end := time.Now().Add(t.limit)
	for done, s := range wanted {
		mutants, files, err := t.mutants(s)
		if err != nil {
			t.fail(err)
			return
		}
		u, err := s.suite(files, t.parallel)
		if err != nil {
			t.fail(err)
			return
		}
		t.random.Shuffle(len(mutants), func(i, j int) { mutants[i], mutants[j] = mutants[j], mutants[i] })
		part := time.Now().Add(time.Until(end) / time.Duration(len(wanted)-done))
		each(t.parallel, mutants, func(m mutation) {
			if t.limit == 0 || time.Now().Before(part) {
				t.one(u, m)
			}
		})
		u.close()
	}
}

// mutants returns those of a subject that are to be tried, and its files.
func (t *trial) mutants(s subject) (mutants []mutation, files map[string][]byte, err error) {
	mutants, files, err = s.mutants(t.match)
	mutants = slices.DeleteFunc(mutants, func(m mutation) bool {
		_, accepted := t.accepted[m.name()]
		_, caught := t.caught[m.name()]
		return accepted || t.known && !caught
	})
	return mutants, files, err
}

// one tries one mutant.
func (t *trial) one(u *suite, m mutation) {
	t.mu.Lock()
	known := t.caught[m.name()]
	t.mu.Unlock()

	by, passed, err := u.try(m, known)
	if err != nil {
		t.fail(err)
		return
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	t.tried++
	verdict := "caught by " + by
	switch {
	case by != "":
		t.caught[m.name()] = by
	case passed > 0:
		verdict = fmt.Sprintf("SURVIVED: %d tests reach it", passed)
	default:
		verdict = "SURVIVED: no test reaches it"
	}
	if by == "" {
		t.survivors++
		delete(t.caught, m.name())
	}
	fmt.Printf("%s: %s: %s\n", m.place, m.name(), verdict)
}

func (t *trial) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = cmp.Or(t.err, err)
}

// Files with names of mutants.
const (
	acceptedFile = "internal/mutation/generated/accepted.txt"
	caughtFile   = "internal/mutation/generated/caught.txt"
)

// read returns what a file says of mutants.
func read(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	remarks := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, remark, found := strings.Cut(line, "  # ")
		if !found {
			return nil, fmt.Errorf("%s says nothing of %q", file, name)
		}
		remarks[name] = remark
	}
	return remarks, nil
}

// write writes what tests have caught, without mutants that do not exist any more.
func write(file string, remarks map[string]string) error {
	var text strings.Builder
	fmt.Fprintln(&text, "# Which test has caught which mutant. Written with -record.")
	exist := make(map[string]bool)
	for _, s := range subjects {
		mutants, _, err := s.mutants(regexp.MustCompile(""))
		if err != nil {
			return err
		}
		for _, m := range mutants {
			exist[m.name()] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(remarks)) {
		if exist[name] {
			fmt.Fprintf(&text, "%s  # %s\n", name, remarks[name])
		}
	}
	return os.WriteFile(file, []byte(text.String()), 0o644)
}
