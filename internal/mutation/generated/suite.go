package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/mutation/mutant"
)

// A subject is a package to make mutants of, and those whose tests are to notice. The tests of one
// are only run if those of the ones before have all passed.
type subject struct {
	dir       string
	witnesses []string
}

const common = "internal/suite" // has tests of all recipes

var subjects = []subject{
	{"barrier", []string{"barrier", common}},
	{"doublebarrier", []string{"doublebarrier", common}},
	{"election", []string{"election", common}},
	{"group", []string{"group", common}},
	{"internal/batch", []string{"internal/batch", "queue"}},
	{"lock", []string{"lock", common}},
	{"once", []string{"once", common}},
	{"protocol", []string{"protocol", "protocol/line", "lock", "barrier", common}},
	{"protocol/line", []string{"protocol/line", "lock", "rwlock", "semaphore", common}},
	{"queue", []string{"queue", common}},
	{"rwlock", []string{"rwlock", common}},
	{"semaphore", []string{"semaphore", common}},
}

// mutants returns the mutants whose names match, and the package's files with all of them.
func (s subject) mutants(match *regexp.Regexp) (chosen []mutation, files map[string][]byte, err error) {
	paths, err := filepath.Glob(filepath.Join(s.dir, "*.go"))
	if err != nil {
		return nil, nil, err
	}

	r := rewriter{files: token.NewFileSet()}
	files = make(map[string][]byte)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		if files[path], err = r.rewrite(path); err != nil {
			return nil, nil, err
		}
	}
	for _, m := range r.mutants {
		if match.MatchString(m.name()) {
			chosen = append(chosen, m)
		}
	}
	return chosen, files, nil
}

// A suite is the tests that may notice the mutants of a subject.
type suite struct {
	dir       string // of the test binaries
	overlay   string // for the go command
	parallel  int
	witnesses []*witness
}

// A witness is the tests of one package.
type witness struct {
	suite   *suite
	dir     string
	binary  string
	build   func() error // builds the test binary, once
	tests   map[string]*test
	observe func() error // finds out what each test reaches, once
}

// A test is one test function.
type test struct {
	name    string
	passes  bool // without a mutant
	took    time.Duration
	reaches []byte       // 1 at the number of each mutant that it reaches
	caught  atomic.Int64 // how many mutants it has caught
}

// suite returns the tests of the subject's witnesses, which it builds when they are needed. It runs
// so many at a time.
func (s subject) suite(files map[string][]byte, parallel int) (*suite, error) {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	u := &suite{dir: dir, parallel: parallel}
	for _, dir := range s.witnesses {
		w := &witness{suite: u, dir: dir, tests: make(map[string]*test)}
		w.binary = filepath.Join(u.dir, strings.ReplaceAll(dir, "/", "-")+".test")
		w.build, w.observe = sync.OnceValue(w.buildTests), sync.OnceValue(w.observeTests)
		u.witnesses = append(u.witnesses, w)
	}
	u.overlay, err = writeOverlay(dir, files)
	return u, err
}

// writeOverlay writes the files, and one for the -overlay flag of the go command.
func writeOverlay(dir string, files map[string][]byte) (string, error) {
	replace := make(map[string]string)
	for path, content := range files {
		original, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		changed := filepath.Join(dir, filepath.Base(path))
		replace[original] = changed
		if err := os.WriteFile(changed, content, 0o600); err != nil {
			return "", err
		}
	}

	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, content, 0o600)
}

// buildTests builds the package's tests with all mutants.
func (w *witness) buildTests() error {
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", w.suite.overlay, "-o", w.binary, "./"+w.dir)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("the mutants do not compile: %s", out)
	}
	names, err := exec.Command(w.binary, "-test.list", "^Test").Output()
	if err != nil {
		return fmt.Errorf("tests of %s: %w", w.dir, err)
	}
	for name := range strings.FieldsSeq(string(names)) {
		w.tests[name] = &test{name: name}
	}
	return nil
}

// limit is how long a test may take without a mutant.
const limit = 2 * time.Minute

// observeTests runs each test once without a mutant. One that fails by itself is left out.
func (w *witness) observeTests() error {
	if err := w.build(); err != nil {
		return err
	}
	each(w.suite.parallel, slices.Collect(maps.Values(w.tests)), func(t *test) {
		reached, began := w.binary+"-"+t.name, time.Now()
		t.passes = w.run([]*test{t}, limit, mutant.Reached+"="+reached) == ""
		t.took = time.Since(began)
		t.reaches, _ = os.ReadFile(reached) // there is none if it reaches nothing
		if !t.passes {
			fmt.Printf("%s of %s is left out: it fails without a mutant\n", t.name, w.dir)
		}
	})
	return nil
}

// try runs the test that is known to catch a mutant, if there is one, and otherwise all that reach
// it. It returns the test that fails, or how many pass.
func (u *suite) try(m mutation, known string) (by string, passed int, err error) {
	name, dir, _ := strings.Cut(known, " of ")
	for _, w := range u.witnesses {
		if w.dir != dir {
			continue
		}
		if err := w.build(); err != nil {
			return "", 0, err
		}
		if t := w.tests[name]; t != nil {
			if by := w.run([]*test{t}, time.Minute, m.active()); by != "" {
				return by, 0, nil
			}
		}
	}

	for _, w := range u.witnesses {
		by, n, err := w.try(m)
		if passed += n; err != nil || by != "" {
			return by, passed, err
		}
	}
	return "", passed, nil
}

// try runs all tests of the package that reach a mutant.
func (w *witness) try(m mutation) (by string, passed int, err error) {
	if err := w.observe(); err != nil {
		return "", 0, err
	}
	var tests []*test
	for _, t := range w.tests {
		if t.passes && m.number < len(t.reaches) && t.reaches[m.number] == 1 {
			tests = append(tests, t)
		}
	}
	slices.SortFunc(tests, func(a, b *test) int {
		return cmp.Or(cmp.Compare(b.caught.Load(), a.caught.Load()), cmp.Compare(a.took, b.took))
	})

	// The first are the likeliest to fail, so few are run at once, and then more and more.
	for passed < len(tests) {
		some, wait := tests[passed:min(2*passed+1, len(tests))], 20*time.Second
		for _, t := range some {
			wait += 4 * t.took
		}
		if by := w.run(some, wait, m.active()); by != "" {
			return by, passed, nil
		}
		passed += len(some)
	}
	return "", passed, nil
}

// active is the environment in which a mutant is active.
func (m mutation) active() string { return fmt.Sprintf("%s=%d", mutant.Active, m.number) }

// run runs tests of the package. It returns the name of one that fails, or an empty string.
func (w *witness) run(tests []*test, wait time.Duration, environment string) (by string) {
	var names []string
	for _, t := range tests {
		names = append(names, t.name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait+10*time.Second)
	defer cancel()

	c := exec.CommandContext(ctx, w.binary, "-test.run", "^("+strings.Join(names, "|")+")$",
		"-test.short", "-test.failfast", "-test.v", fmt.Sprintf("-test.timeout=%v", wait))
	c.Dir = w.dir
	c.WaitDelay = time.Second
	c.Env = append(os.Environ(), environment,
		"ZKRECIPES_REAL=0", "ZKRECIPES_REQUIRE_REAL=0", "RAPID_NOFAILFILE=true")
	out, err := c.CombinedOutput()
	if err == nil {
		return ""
	}

	// After a panic the last test that began is the one.
	name := tests[0].name
	if began := begun.FindAllSubmatch(out, -1); began != nil {
		name = string(began[len(began)-1][1])
	}
	if failed := failedTest.FindSubmatch(out); failed != nil {
		name = string(failed[1])
	}
	if t := w.tests[name]; t != nil {
		t.caught.Add(1)
	}
	return name + " of " + w.dir
}

var (
	begun      = regexp.MustCompile(`(?m)^=== RUN +([^/\s]+)$`)
	failedTest = regexp.MustCompile(`(?m)^ *--- FAIL: ([^/\s]+)`)
)

func (u *suite) close() { os.RemoveAll(u.dir) }

// each calls f for each element, for so many at a time.
func each[T any](parallel int, all []T, f func(T)) {
	next := make(chan T)
	var workers sync.WaitGroup
	for range parallel {
		workers.Go(func() {
			for x := range next {
				f(x)
			}
		})
	}
	for _, x := range all {
		next <- x
	}
	close(next)
	workers.Wait()
}
