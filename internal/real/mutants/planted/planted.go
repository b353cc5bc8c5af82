// Package planted has a list of bugs to plant in the library, so that the checks can be checked:
// a check that never found anything proves nothing.
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

// A Bug replaces Old in File by New. Old must occur once there. A test or the nemesis (or both)
// must find it.
type Bug struct {
	Name     string
	Breaks   string // what goes wrong for a user
	File     string // empty if the bug is in what the nemesis runs
	Old, New string

	Package string   // whose tests must fail, as a directory; that of File if it is empty
	Test    string   // a -run pattern of go test, or empty
	Recipes []string // that the nemesis runs to find the bug, one at a time
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

// Overlay returns the path of a file for the -overlay flag of the go command, which plants the bug
// in the repository at root. It writes to dir.
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

// Overlay returns the path of a file for the -overlay flag of the go command, which replaces files
// (or adds them) by the contents given. It writes to dir.
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

// Root returns the directory of the repository, which the working directory is in.
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

// Module returns the directory of the innermost module that a directory of the repository is in.
func Module(root, dir string) string {
	for dir = filepath.Join(root, dir); dir != root; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
	}
	return dir
}
