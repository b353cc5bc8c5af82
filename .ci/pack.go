// Pack writes the modules of this repository into a directory, as a module proxy serves them:
//
//	go run .ci/pack.go DIR VERSION
//
// The files are what is in the working tree, except for what Git ignores. Where the modules require
// each other, they require that version.
package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const root = "github.com/zkrecipes/zkrecipes"

var ours = regexp.MustCompile(`(` + root + `[\w/]*) v\S+`)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: go run .ci/pack.go DIR VERSION")
	}
	if err := pack(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func pack(proxy, version string) error {
	listed, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	files := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(listed)), "\n"), func(file string) bool {
		info, err := os.Lstat(file)
		return err != nil || !info.Mode().IsRegular() // deleted, or no part of a module
	})

	// The deepest come first: a file belongs to the first module that it is below.
	var modules []string
	for _, file := range files {
		if filepath.Base(file) == "go.mod" && !strings.Contains(file, "testdata/") {
			modules = append(modules, filepath.Dir(file))
		}
	}
	slices.SortFunc(modules, func(a, b string) int { return len(b) - len(a) })
	below := make(map[string][]string)
	for _, file := range files {
		i := slices.IndexFunc(modules, func(m string) bool { return m == "." || strings.HasPrefix(file, m+"/") })
		below[modules[i]] = append(below[modules[i]], file)
	}

	for _, module := range modules {
		if err := packModule(proxy, version, module, below[module]); err != nil {
			return fmt.Errorf("%s: %w", module, err)
		}
	}
	return nil
}

func packModule(proxy, version, module string, files []string) error {
	path := root
	if module != "." {
		path += "/" + module
	}
	dir := filepath.Join(proxy, path, "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}

	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name := file
		if module != "." {
			name = strings.TrimPrefix(file, module+"/")
		}
		if name == "go.mod" {
			content = ours.ReplaceAll(content, []byte("$1 "+version))
			if err := os.WriteFile(filepath.Join(dir, version+".mod"), content, 0o644); err != nil {
				return err
			}
		}
		w, err := z.Create(path + "@" + version + "/" + name)
		if err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}

	for name, content := range map[string][]byte{
		version + ".zip":  archive.Bytes(),
		version + ".info": fmt.Appendf(nil, `{"Version":%q,"Time":"2000-01-01T00:00:00Z"}`, version),
		"list":            []byte(version + "\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
