// Mutation proves that the tests bite: it takes one protection after the other out of the code and runs the test that
// is there for it, which then has to fail.
//
//	go run ./internal/mutation             all of them
//	go run ./internal/mutation -run trust  those whose names match
//	go run ./internal/mutation -list       their names
//
// The working tree is not touched: the go command is given the changed file as an overlay. A mutation whose code is not
// found, does not compile or is not noticed is an error.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A mutation replaces Old, which stands once in File, by New, and expects Test of Package to fail.
type mutation struct {
	Name     string // what is missing then
	File     string
	Old, New string
	Package  string // defaults to the directory of File
	Test     string // a -run pattern
}

func main() {
	run := flag.String("run", "", "only mutations whose names match this regular expression")
	list := flag.Bool("list", false, "print names and do nothing")
	flag.Parse()
	match, err := regexp.Compile(*run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	caught, total := 0, 0
	for _, m := range mutations {
		if !match.MatchString(m.Name) {
			continue
		}
		if *list {
			fmt.Println(m.Name)
			continue
		}
		total++
		began := time.Now()
		by, err := m.try()
		verdict := "caught by " + by
		if err != nil {
			verdict = "NOT CAUGHT: " + err.Error()
		} else {
			caught++
		}
		fmt.Printf("%5.1fs  %-70s %s\n", time.Since(began).Seconds(), m.Name, verdict)
	}
	if *list {
		return
	}
	fmt.Printf("%d of %d mutations were caught\n", caught, total)
	if caught < total {
		os.Exit(1)
	}
}

// try tells what has caught the mutation.
func (m mutation) try() (by string, err error) {
	source, err := os.ReadFile(m.File)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(source), m.Old); n != 1 {
		return "", fmt.Errorf("its code stands %d times in %s", n, m.File)
	}
	dir, err := os.MkdirTemp("", "mutation")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	mutant := filepath.Join(dir, filepath.Base(m.File))
	if err := os.WriteFile(mutant, []byte(strings.Replace(string(source), m.Old, m.New, 1)), 0o600); err != nil {
		return "", err
	}
	original, err := filepath.Abs(m.File)
	if err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: mutant}})
	if err != nil {
		return "", err
	}
	overlayFile := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		return "", err
	}
	pkg := m.Package
	if pkg == "" {
		pkg = "./" + filepath.Dir(m.File)
	}
	build := exec.Command("go", "vet", "-overlay", overlayFile, pkg)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("it does not compile: %s", out)
	}
	args := []string{"test", "-overlay", overlayFile, "-count=1", "-timeout=60s", "-run", m.Test}
	test := exec.Command("go", append(args, pkg)...)
	test.Env = append(os.Environ(), "RAPID_NOFAILFILE=true")
	out, err := test.CombinedOutput()
	switch {
	case err == nil:
		return "", fmt.Errorf("%s passes", m.Test)
	case ended.Match(out):
		return m.Test, nil // which has not ended by itself
	}
	failed := failedTest.FindSubmatch(out)
	if failed == nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return string(failed[1]), nil
}

var (
	failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	ended      = regexp.MustCompile(`(?m)^(panic|fatal error): `)
)
