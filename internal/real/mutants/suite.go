package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/real/mutants/planted"
)

// A suite has the tests that can notice the mutants of a subject.
type suite struct {
	root      string // of the repository
	module    string // whose tests these are
	dir       string // of the test binaries
	overlay   string // for the go command
	parallel  int
	witnesses []*witness

	mu    sync.Mutex
	known map[string]*witness // by directory; others than these have killed mutants before
}

// A witness has the tests of one package.
type witness struct {
	suite   *suite
	dir     string
	binary  string
	build   func() error // builds the test binary, once
	tests   map[string]*test
	observe func() error // finds out, once, which mutants each test reaches
}

// A test is one test function.
type test struct {
	name    string
	passes  bool // without a mutant
	took    time.Duration
	reaches []byte       // 1 at the number of each mutant it reaches
	killed  atomic.Int64 // how many mutants it killed
}

// suite returns the tests that can notice mutants of the subject: its own tests, the tests in its
// module's directory, and the tests of other packages (given in others) of the module. They are
// built when they are needed. As many as parallel run at a time.
func (s *subject) suite(root string, others []string, files map[string][]byte, parallel int) (*suite, error) {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	u := &suite{root: root, module: s.module, parallel: parallel, dir: dir, known: make(map[string]*witness)}
	all := []string{s.dir}
	if s.module != root { // a command's tests are in its main package
		all = append(all, relative(root, s.module))
	}

	for _, tests := range slices.Compact(append(all, others...)) {
		if planted.Module(root, tests) != s.module {
			continue
		}
		u.witnesses = append(u.witnesses, u.witness(tests))
	}

	u.overlay, err = planted.Overlay(dir, files)
	return u, err
}

// witness returns the tests of a directory.
func (u *suite) witness(dir string) *witness {
	u.mu.Lock()
	defer u.mu.Unlock()
	if w := u.known[dir]; w != nil {
		return w
	}
	w := &witness{suite: u, dir: dir, tests: make(map[string]*test)}
	w.binary = filepath.Join(u.dir, strings.ReplaceAll(dir, "/", "-")+".test")
	w.build, w.observe = sync.OnceValue(w.buildTests), sync.OnceValue(w.observeTests)
	u.known[dir] = w
	return w
}

// buildTests builds the package's tests with all mutants.
func (w *witness) buildTests() error {
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", w.suite.overlay,
		"-o", w.binary, filepath.Join(w.suite.root, w.dir))
	build.Dir = w.suite.module
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("the mutants do not compile: %s", out)
	}

	names, err := exec.Command(w.binary, "-test.list", "^Test").Output()
	if errors.Is(err, fs.ErrNotExist) { // the package has no tests
		return nil
	} else if err != nil {
		return fmt.Errorf("tests of %s: %w", w.dir, err)
	}

	for name := range strings.FieldsSeq(string(names)) {
		w.tests[name] = &test{name: name}
	}
	return nil
}

// limit is how long a test may take without a mutant.
const limit = 2 * time.Minute

// observeTests runs each test once without a mutant. A test that fails by itself is left out.
func (w *witness) observeTests() error {
	if err := w.build(); err != nil {
		return err
	}
	each(w.suite.parallel, slices.Collect(maps.Values(w.tests)), func(t *test) {
		reached, began := w.binary+"-"+t.name, time.Now()
		t.passes = w.run([]*test{t}, limit, "ZKRECIPES_MUTANTS_REACHED="+reached, true) == nil
		t.took = time.Since(began)
		t.reaches, _ = os.ReadFile(reached) // there's no file if it reaches nothing
		if !t.passes {
			fmt.Printf("%s of %s is left out: it fails without a mutant\n", t.name, w.dir)
		}
	})
	return nil
}

// try runs the test that is known to kill a mutant, without -short. A law plays a sample of its
// cells, and then all cells of the mutant's package. If there is no such test, try runs all tests
// that reach the mutant, with -short. It returns the test that fails, or how many pass.
func (u *suite) try(m mutation, known string) (by string, passed int, err error) {
	if name, dir, found := strings.Cut(known, " of "); found {
		w := u.witness(dir)
		if w.build() == nil { // that package may have been removed
			fails := func(t *test, wait time.Duration, flags ...string) bool {
				return w.run([]*test{t}, wait, m.active(), false, flags...) != nil
			}
			cells := fmt.Sprintf(`-laws.verb=^%s\.`, path.Base(m.dir))
			if t := w.tests[name]; t != nil && (fails(t, 2*time.Minute) ||
				dir == "internal/suite/laws" && fails(t, 10*time.Minute, cells)) {
				return known, 0, nil
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

	// Tests that have killed mutants are the likeliest to kill again, and short tests cost little.
	slices.SortFunc(tests, func(a, b *test) int {
		return cmp.Or(cmp.Compare(b.killed.Load(), a.killed.Load()), cmp.Compare(a.took, b.took))
	})

	// The first tests are the likeliest to fail, so run a few at once, and then more and more.
	for passed < len(tests) {
		some := tests[passed:min(2*passed+1, len(tests))]
		t := w.run(some, patience(some...), m.active(), true)
		if t == nil {
			passed += len(some)
			continue
		}
		// On a busy machine a test can fail by chance, so it must fail twice.
		if w.run([]*test{t}, patience(t), m.active(), true) != nil {
			t.killed.Add(1)
			return t.name + " of " + w.dir, passed, nil
		}
		tests = slices.DeleteFunc(tests, func(other *test) bool { return other == t })
	}

	return "", passed, nil
}

// patience is how long tests may take with a mutant.
func patience(tests ...*test) time.Duration {
	wait := 15 * time.Second
	for _, t := range tests {
		wait += 4 * t.took
	}
	return wait
}

// testEnvironment leaves real servers out.
var testEnvironment = []string{"ZKRECIPES_REAL=0", "ZKRECIPES_REQUIRE_REAL=0", "RAPID_NOFAILFILE=true"}

// active is the environment in which a mutant is active.
func (m mutation) active() string { return fmt.Sprint("ZKRECIPES_MUTANT=", m.number) }

// run runs tests of the package, perhaps with -short, and with further flags. It returns a test
// that fails, or nil.
func (w *witness) run(tests []*test, wait time.Duration, environment string, short bool, flags ...string) *test {
	var names []string
	for _, t := range tests {
		names = append(names, t.name)
	}
	// The binary ends itself after wait. The context is for a process that cannot even do that.
	ctx, cancel := context.WithTimeout(context.Background(), wait+10*time.Second)
	defer cancel()

	// Limit the memory, because a mutant can take all of it.
	args := append([]string{
		"-c", `ulimit -v 8388608 2>/dev/null; exec "$0" "$@"`,
		w.binary, "-test.run", "^(" + strings.Join(names, "|") + ")$", fmt.Sprint("-test.short=", short), "-test.failfast", "-test.v",
		fmt.Sprintf("-test.timeout=%v", wait),
	}, flags...)
	c := exec.CommandContext(ctx, "sh", args...)
	c.Dir = filepath.Join(w.suite.root, w.dir)
	// A process started by the test may keep the output open.
	c.WaitDelay = time.Second
	c.Env = append(append(os.Environ(), environment), testEnvironment...)
	out, err := c.CombinedOutput()
	if err == nil {
		return nil
	}

	// If the process panicked, the last test that began is to blame.
	name := tests[0].name
	if began := begun.FindAllSubmatch(out, -1); began != nil {
		name = string(began[len(began)-1][1])
	}
	if failed := failedTest.FindSubmatch(out); failed != nil {
		name = string(failed[1])
	}
	return cmp.Or(w.tests[name], tests[0])
}

var (
	begun      = regexp.MustCompile(`(?m)^=== RUN +([^/\s]+)$`)
	failedTest = regexp.MustCompile(`(?m)^ *--- FAIL: ([^/\s]+)`)
)

func (u *suite) close() { os.RemoveAll(u.dir) }

// each calls f for each element, parallel at a time.
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
