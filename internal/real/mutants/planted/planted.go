// Package planted has a list of bugs to plant in the library, so that we can check the checks (a
// check that never found anything proves nothing).
//
//	go run ./internal/real/mutants -planted     those that tests must find
//	go run ./internal/real/nemesis -planted          those that the nemesis must find
//
// The working tree isn't changed: the go command gets the changed file as an overlay.
package planted

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A Bug replaces Old with New in File. Old must occur there exactly once. A test or the nemesis (or
// both) must find the bug.
type Bug struct {
	Name     string
	File     string
	Old, New string

	Package string   // the directory of the package whose tests must fail; File's directory if empty
	Test    string   // a -run pattern of go test, or empty
	Recipes []string // recipes that the nemesis runs to find the bug, one at a time
}

// Dir returns the directory of the package whose tests must fail.
func (b Bug) Dir() string { return cmp.Or(b.Package, filepath.Dir(b.File)) }

// Plant returns the text of File with the bug.
func (b Bug) Plant(source string) (string, error) {
	if n := strings.Count(source, b.Old); n != 1 {
		return "", fmt.Errorf("%s: its code occurs %d times in %s: %q", b.Name, n, b.File, b.Old)
	}
	return strings.Replace(source, b.Old, b.New, 1), nil
}

// Overlay writes a file for the go command's flag -overlay that plants the bug in the repository at
// root. It writes to dir, and returns the file's path.
func (b Bug) Overlay(root, dir string) (string, error) {
	file := filepath.Join(root, b.File)
	source, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	planted, err := b.Plant(string(source))
	if err != nil {
		return "", err
	}
	return Overlay(dir, map[string][]byte{file: []byte(planted)})
}

// Overlay writes a file for the go command's flag -overlay that replaces or adds files with these
// contents. It writes to dir, and returns the file's path.
func Overlay(dir string, files map[string][]byte) (string, error) {
	replace := make(map[string]string)
	for file, content := range files {
		replace[file] = filepath.Join(dir, fmt.Sprint(len(replace), filepath.Base(file)))
		if err := os.WriteFile(replace[file], content, 0o600); err != nil {
			return "", err
		}
	}

	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, overlay, 0o600)
}

// Root returns the directory of the repository that contains the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		module, _ := os.ReadFile(filepath.Join(dir, "go.mod"))
		if strings.HasPrefix(string(module), "module github.com/zkrecipes/zkrecipes\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("run it within the repository")
		}
	}
	return "", err
}

// Module returns the directory of the innermost module that contains a directory of the repository.
func Module(root, dir string) string {
	for dir = filepath.Join(root, dir); dir != root; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
	}
	return dir
}
