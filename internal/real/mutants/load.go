package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// targets are the packages to make mutants of, by module. Packages of the module that they import
// are targets, too.
var targets = []struct {
	module   string
	patterns []string
}{
	{".", []string{
		"./barrier", "./doublebarrier", "./election", "./group", "./lock", "./once", "./queue", "./rwlock",
		"./semaphore", "./value", "./recipestest/embedded",
	}},
	{"cmd/zkr", []string{"./..."}},
	{"otel", []string{"./..."}},
}

// A subject is a package to make mutants of.
type subject struct {
	dir     string // in the repository (protocol/line, for example)
	path    string // its import path
	module  string // the directory of its module
	files   []string
	exports map[string]string // files with the types of all packages that it can import
}

// subjects returns all packages to make mutants of.
func subjects(root string) (all []*subject, err error) {
	for _, t := range targets {
		module := filepath.Join(root, t.module)
		packages, exports, err := list(module, t.patterns...)
		if err != nil {
			return nil, err
		}
		for _, p := range packages {
			// -deps also lists the standard library and other modules.
			if p.Module == nil || p.Module.Dir != module {
				continue
			}
			s := &subject{dir: relative(root, p.Dir), path: p.ImportPath, module: module, exports: exports}
			for _, file := range p.GoFiles {
				s.files = append(s.files, filepath.Join(p.Dir, file))
			}
			all = append(all, s)
		}
	}

	return all, nil
}

// A listed package is an entry in the output of go list.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	Module                  *struct{ Dir string }
}

// list lists packages of a module and everything they import, and the files with their types.
func list(module string, patterns ...string) (packages []listed, exports map[string]string, err error) {
	list := exec.Command("go", append([]string{"list", "-deps", "-export", "-json=ImportPath,Dir,GoFiles,Export,Module"}, patterns...)...)
	list.Dir = module
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", list, err)
	}

	exports = make(map[string]string)
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, exports, nil
		} else if err != nil {
			return nil, nil, err
		}
		packages, exports[p.ImportPath] = append(packages, p), p.Export
	}
}

func relative(root, dir string) string {
	rel, err := filepath.Rel(root, dir)
	if err != nil {
		return dir
	}
	return filepath.ToSlash(rel)
}

//go:embed mutant/mutant.go
var injected string

// mutants returns all mutants of the package, and its files with all of them in. Mutants that don't
// compile are left out.
func (s *subject) mutants() ([]mutation, map[string][]byte, error) {
	sources := make(map[string][]byte)
	for _, file := range s.files {
		var err error
		if sources[file], err = os.ReadFile(file); err != nil {
			return nil, nil, err
		}
	}

	files := token.NewFileSet()
	parsed, info, errs := s.check(files, sources)
	if len(errs) > 0 {
		return nil, nil, errs[0]
	}

	// Mutants don't add lines, so an error of the changed code is in the line of its mutant.
	for broken := make(map[string]bool); ; {
		r := rewriter{files: files, info: info, dir: s.dir, path: s.path, broken: broken}
		changed := make(map[string][]byte)
		for _, file := range parsed {
			name := files.Position(file.Pos()).Filename
			changed[name] = r.rewrite(file, sources[name])
		}
		if len(r.mutants) == 0 {
			return nil, nil, nil
		}
		// The functions that mutants call go into the package itself, so the files need no further
		// import.
		name := parsed[0].Name.Name
		changed[filepath.Join(filepath.Dir(s.files[0]), "zz_mutant.go")] =
			[]byte(strings.Replace(injected, "\npackage mutant\n", "\npackage "+name+"\n", 1))

		_, _, errs := s.check(token.NewFileSet(), changed)
		if len(errs) == 0 {
			return r.mutants, changed, nil
		}
		progress := false
		// Leave out the mutants in each line with an error, and try again.
		for _, err := range errs {
			at := place(err.Fset.Position(err.Pos))
			progress = progress || !broken[at]
			broken[at] = true
		}
		// Without a new line to leave out, the next attempt would fail in the same way.
		if !progress {
			return nil, nil, fmt.Errorf("the mutants do not compile: %w", errs[0])
		}
	}
}

func place(p token.Position) string { return fmt.Sprint(p.Filename, ":", p.Line) }

// check parses files and checks their types.
func (s *subject) check(files *token.FileSet, sources map[string][]byte) (parsed []*ast.File, info *types.Info, errs []types.Error) {
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		file, err := parser.ParseFile(files, name, sources[name], parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return nil, nil, []types.Error{{Fset: files, Pos: file.Pos(), Msg: err.Error()}}
		}
		parsed = append(parsed, file)
	}

	info = &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object)}
	// Don't stop at the first error, because each error names a mutant to leave out.
	config := types.Config{
		Importer: importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(s.exports[path]) }),
		Error:    func(err error) { errs = append(errs, err.(types.Error)) },
	}
	config.Check(s.path, files, parsed, info)
	return parsed, info, errs
}
