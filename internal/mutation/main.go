// Mutation shows that the tests can fail. It takes one protection after the other out of the code,
// and runs the tests of that protection. At least one of them must fail.
//
//	go run ./internal/mutation             all of them
//	go run ./internal/mutation -run trust  those whose names match
//	go run ./internal/mutation -list       their names
//	go run ./internal/mutation -short      on the embedded server only
//
// The working tree is not changed: the go command gets the changed file as an overlay. It is an
// error if the code of a mutation is not found, does not compile, or passes its tests. The test of
// this package finds mutations whose code is not found.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A mutation replaces Old in File by New, and expects a test of Package to fail. Old must occur
// once in File, or once in its function Func.
type mutation struct {
	Name     string // what goes wrong without the protection
	File     string
	Func     string // optional: "Start", "(*session).overdue"
	Old, New string
	Package  string // defaults to the directory of File
	Test     string // a -run pattern
}

// mutations are listed in one file for each area. When code that an entry quotes moves or changes,
// change the entry.
var mutations []mutation

func main() {
	run := flag.String("run", "", "only mutations whose names match this regular expression")
	list := flag.Bool("list", false, "print names and do nothing")
	short := flag.Bool("short", false, "leave out real servers")
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
		by, err := m.try(*short)
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

// try returns the name of the test that fails with the mutation.
func (m mutation) try(short bool) (by string, err error) {
	mutant, err := m.mutant()
	if err != nil {
		return "", err
	}

	dir, err := os.MkdirTemp("", "mutation")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := m.overlay(dir, mutant)
	if err != nil {
		return "", err
	}

	pkg, module, err := m.place()
	if err != nil {
		return "", err
	}

	// Building the test takes most of the time, so nothing is built for vet or debuggers.
	test := exec.Command("go", "test", "-overlay", overlay, "-vet=off", "-ldflags=-s -w",
		"-count=1", "-timeout=60s", "-run", m.Test, pkg)
	test.Dir = module
	test.Env = append(os.Environ(), "RAPID_NOFAILFILE=true")
	if short {
		test.Env = append(test.Env, "ZKRECIPES_REAL=0", "ZKRECIPES_REQUIRE_REAL=0")
	}

	out, err := test.CombinedOutput()
	switch {
	case noTest.Match(out):
		return "", fmt.Errorf("no test of %s matches %s", pkg, m.Test)
	case err == nil:
		return "", fmt.Errorf("%s passes", m.Test)
	case unbuilt.Match(out):
		return "", fmt.Errorf("it does not compile: %s", out)
	}

	if failed := failedTest.FindSubmatch(out); failed != nil {
		return string(failed[1]), nil
	}

	if ended.Match(out) { // the test binary was aborted
		return m.Test, nil
	}

	return "", fmt.Errorf("%w: %s", err, out)
}

var (
	failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	ended      = regexp.MustCompile(`(?m)^(panic|fatal error): `)
	noTest     = regexp.MustCompile(`\[no tests to run\]`)
	unbuilt    = regexp.MustCompile(`(?m)^FAIL\s.*\[(build|setup) failed\]`)
)

// pkg returns the package whose tests have to fail.
func (m mutation) pkg() string {
	if m.Package != "" {
		return m.Package
	}
	return "./" + filepath.Dir(m.File)
}

// place returns the package whose tests have to fail as its module names it, and the directory of
// that module.
func (m mutation) place() (pkg, module string, err error) {
	module = filepath.Clean(m.pkg())
	for {
		if _, err := os.Stat(filepath.Join(module, "go.mod")); err == nil || module == "." {
			break
		}
		module = filepath.Dir(module)
	}
	rel, err := filepath.Rel(module, m.pkg())
	return "./" + filepath.ToSlash(rel), module, err
}

// overlay writes the mutant into dir, and beside it a file for the -overlay flag of the go command.
// It returns the path of that file.
func (m mutation) overlay(dir, mutant string) (string, error) {
	original, err := filepath.Abs(m.File)
	if err != nil {
		return "", err
	}

	instead := filepath.Join(dir, filepath.Base(m.File))
	if err := os.WriteFile(instead, []byte(mutant), 0o600); err != nil {
		return "", err
	}

	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: instead}})
	if err != nil {
		return "", err
	}

	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, overlay, 0o600)
}

// mutant returns the file without the protection.
func (m mutation) mutant() (string, error) {
	b, err := os.ReadFile(m.File)
	if err != nil {
		return "", err
	}

	source, from, to, where := string(b), 0, len(b), m.File
	if m.Func != "" {
		if from, to, err = extent(m.File, b, m.Func); err != nil {
			return "", err
		}
		where = m.Func + " of " + m.File
	}

	if n := strings.Count(source[from:to], m.Old); n != 1 {
		return "", fmt.Errorf("its code occurs %d times in %s: %q", n, where, m.Old)
	}

	return source[:from] + strings.Replace(source[from:to], m.Old, m.New, 1) + source[to:], nil
}

// extent returns the offsets at which a function begins and ends in its file.
func extent(file string, source []byte, name string) (from, to int, err error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, source, parser.SkipObjectResolution)
	if err != nil {
		return 0, 0, err
	}

	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && nameOf(f) == name {
			return files.Position(f.Pos()).Offset, files.Position(f.End()).Offset, nil
		}
	}

	return 0, 0, fmt.Errorf("%s has no function %s", file, name)
}

// nameOf returns a function's name, with its receiver's type as in a method expression.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}

	receiver := f.Recv.List[0].Type
	if _, ok := receiver.(*ast.StarExpr); ok {
		return "(" + types.ExprString(receiver) + ")." + f.Name.Name
	}

	return types.ExprString(receiver) + "." + f.Name.Name
}
