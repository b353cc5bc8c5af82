package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/real/mutants/planted"
)

// findBugs plants each listed bug that a test must find, as long as there is time. It returns how
// many were missed.
func (t *trial) findBugs() (missed int) {
	end := time.Now().Add(t.limit)
	each(t.jobs, planted.Bugs, func(b planted.Bug) {
		if b.Test == "" || !t.match.MatchString(b.Name) || t.limit > 0 && time.Now().After(end) {
			return
		}
		began := time.Now()
		err := findBug(t.root, b)
		verdict := "found by " + b.Test + " of " + b.Dir()
		if err != nil {
			verdict = "NOT FOUND: " + err.Error()
		}

		t.mu.Lock()
		defer t.mu.Unlock()
		if err != nil {
			missed++
		}
		fmt.Printf("%5.1fs  %-55s %s\n", time.Since(began).Seconds(), b.Name, verdict)
	})
	return missed
}

// findBug returns an error unless the bug's tests fail.
func findBug(root string, b planted.Bug) error {
	dir, err := os.MkdirTemp("", "planted")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := b.Overlay(root, dir)
	if err != nil {
		return err
	}

	// Most of the time goes into linking the test, so leave out everything for debuggers.
	test := exec.Command("go", "test", "-overlay", overlay, "-vet=off", "-ldflags=-s -w",
		"-count=1", "-timeout=2m", "-run", b.Test, ".")
	test.Dir = filepath.Join(root, b.Dir())
	test.Env = append(os.Environ(), testEnvironment...)
	out, err := test.CombinedOutput()
	// go test succeeds if no test matches, so look at its output first.
	switch {
	case noTest.Match(out):
		return errors.New("no test matches")
	case err == nil:
		return errors.New("the tests pass")
	case !failedTest.Match(out) && !aborted.Match(out):
		return fmt.Errorf("%w: %s", err, out)
	}

	return nil
}

var (
	noTest  = regexp.MustCompile(`\[no tests to run\]`)
	aborted = regexp.MustCompile(`(?m)^(panic|fatal error): `)
)
