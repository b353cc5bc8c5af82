package main

import (
	"context"
	"encoding/json"
	"fmt"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/mutation/mutant"
)

// A subject is a package to make mutants of, and those whose tests are to notice.
type subject struct {
	dir       string
	witnesses []string
}

var subjects = []subject{
	{"barrier", []string{"barrier"}},
	{"doublebarrier", []string{"doublebarrier"}},
	{"election", []string{"election"}},
	{"group", []string{"group"}},
	{"internal/batch", []string{"internal/batch", "queue"}},
	{"lock", []string{"lock"}},
	{"once", []string{"once"}},
	{"protocol", []string{"protocol", "protocol/line", "lock", "barrier"}},
	{"protocol/line", []string{"protocol/line", "lock", "rwlock", "semaphore"}},
	{"queue", []string{"queue"}},
	{"rwlock", []string{"rwlock"}},
	{"semaphore", []string{"semaphore"}},
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
	dir   string // of the test binaries
	tests []test
}

// A test is one test function.
type test struct {
	binary, dir, name string
	took              time.Duration
	reaches           []byte // 1 at the number of each mutant that it reaches
}

// build builds the tests of the subject's witnesses, and runs each once to see what it reaches.
func (s subject) build(files map[string][]byte) (*suite, error) {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	u := &suite{dir: dir}
	overlay, err := u.overlay(files)
	if err != nil {
		return nil, err
	}

	for _, witness := range s.witnesses {
		binary := filepath.Join(dir, strings.ReplaceAll(witness, "/", "-")+".test")
		build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, "./"+witness)
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("the mutants of %s do not compile: %s", s.dir, out)
		}
		names, err := exec.Command(binary, "-test.list", "^Test").Output()
		if err != nil {
			return nil, fmt.Errorf("tests of %s: %w", witness, err)
		}
		for name := range strings.FieldsSeq(string(names)) {
			u.observe(test{binary: binary, dir: witness, name: name})
		}
	}
	slices.SortFunc(u.tests, func(a, b test) int { return int(a.took - b.took) })
	return u, nil
}

// overlay writes the files, and one for the -overlay flag of the go command.
func (u *suite) overlay(files map[string][]byte) (string, error) {
	replace := make(map[string]string)
	for path, content := range files {
		original, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		changed := filepath.Join(u.dir, filepath.Base(path))
		replace[original] = changed
		if err := os.WriteFile(changed, content, 0o600); err != nil {
			return "", err
		}
	}

	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(u.dir, "overlay.json")
	return name, os.WriteFile(name, content, 0o600)
}

// limit is how long a test may take without a mutant.
const limit = 2 * time.Minute

// observe runs a test without a mutant. A test that fails by itself is left out.
func (u *suite) observe(t test) {
	file := filepath.Join(u.dir, "reached")
	os.Remove(file)
	began := time.Now()
	if failed, by := u.run([]test{t}, limit, mutant.Reached+"="+file); failed {
		fmt.Printf("%s of %s is left out: it fails without a mutant (%s)\n", t.name, t.dir, by)
		return
	}
	t.took = time.Since(began)
	t.reaches, _ = os.ReadFile(file) // there is none if it reaches nothing
	u.tests = append(u.tests, t)
}

// try runs the tests that reach a mutant, the quick ones first. It reports whether all have passed.
func (u *suite) try(m mutation) (verdict string, survived bool) {
	byBinary := make(map[string][]test)
	var order []string
	n := 0
	for _, t := range u.tests {
		if m.number >= len(t.reaches) || t.reaches[m.number] == 0 {
			continue
		}
		if byBinary[t.binary] == nil {
			order = append(order, t.binary)
		}
		byBinary[t.binary] = append(byBinary[t.binary], t)
		n++
	}
	if n == 0 {
		return "SURVIVED: no test reaches it", true
	}

	for _, binary := range order {
		tests := byBinary[binary]
		wait := 20 * time.Second
		for _, t := range tests {
			wait += 4 * t.took
		}
		if failed, by := u.run(tests, wait, fmt.Sprintf("%s=%d", mutant.Active, m.number)); failed {
			return "caught by " + by, false
		}
	}
	return fmt.Sprintf("SURVIVED: %d tests reach it", n), true
}

// run runs tests of one binary and reports whether one of them fails.
func (u *suite) run(tests []test, wait time.Duration, environment string) (failed bool, by string) {
	var names []string
	for _, t := range tests {
		names = append(names, t.name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait+10*time.Second)
	defer cancel()

	c := exec.CommandContext(ctx, tests[0].binary, "-test.run", "^("+strings.Join(names, "|")+")$",
		"-test.short", "-test.failfast", fmt.Sprintf("-test.timeout=%v", wait))
	c.Dir = tests[0].dir
	c.WaitDelay = time.Second
	c.Env = append(os.Environ(), environment,
		"ZKRECIPES_REAL=0", "ZKRECIPES_REQUIRE_REAL=0", "RAPID_NOFAILFILE=true")
	out, err := c.CombinedOutput()
	if err == nil {
		return false, ""
	}
	if match := failedTest.FindSubmatch(out); match != nil {
		return true, string(match[1])
	}
	return true, err.Error()
}

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

func (u *suite) close() { os.RemoveAll(u.dir) }
