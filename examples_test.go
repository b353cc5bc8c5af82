package zkrecipes_test

import (
	"bytes"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

// An example is copied from pkg.go.dev, which shows it with its imports if it is a whole file, or
// if it needs nothing from other files.
func TestExamplesCanBeCopiedWhole(t *testing.T) {
	for _, p := range publicPackages(t) {
		for _, e := range p.examples {
			assert.NotEmpty(t, e.text, "%s: Example%s needs what is in another file", p.doc.Name, e.name)
			if p.recipe() {
				connects := strings.Contains(e.text, "protocol.Connect(")
				assert.True(t, connects, "%s: Example%s does not connect", p.doc.Name, e.name)
			}
		}
	}
}

// A type is shown by an example that names it or one of its constants, or that calls a function or
// method with such a receiver, parameter or result. An option is shown by an example that uses it.
func TestEveryTypeAndOptionHasAnExample(t *testing.T) {
	packages := publicPackages(t)
	var options strings.Builder // the examples of all packages
	for _, p := range packages {
		options.WriteString(p.text())
	}

	// An example shows a type if it names it, or calls a function with such a type.
	for _, p := range packages {
		text := p.text()
		called := p.signatures(func(f *doc.Func) bool { return regexp.MustCompile(`\b` + f.Name + `\(`).MatchString(text) })
		for _, typ := range p.doc.Types {
			if strings.HasSuffix(typ.Name, "Option") && len(typ.Funcs) == 0 {
				continue // there are none yet
			}
			shown := word(called, typ.Name) || word(text, p.doc.Name+"."+typ.Name)
			for _, constants := range typ.Consts {
				for _, name := range constants.Names {
					shown = shown || word(text, p.doc.Name+"."+name)
				}
			}
			if strings.HasSuffix(typ.Name, "Option") {
				for _, f := range typ.Funcs {
					used := strings.Contains(options.String(), p.doc.Name+"."+f.Name+"(")
					assert.True(t, used, "no example of %s.%s", p.doc.Name, f.Name)
				}
				shown = true
			}
			assert.True(t, shown, "no example of %s.%s", p.doc.Name, typ.Name)
		}
	}
}

func word(text, word string) bool {
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(word) + `\b`).MatchString(text)
}

// A publicPackage is a package that users import, with its examples.
type publicPackage struct {
	doc      *doc.Package
	examples []example
}

type example struct{ name, text string } // no text if it cannot be shown with its imports

// recipe reports whether a program uses the package with a client.
func (p publicPackage) recipe() bool {
	return !strings.HasPrefix(p.doc.ImportPath, "recipestest") && p.doc.Name != "protocol"
}

func (p publicPackage) text() string {
	var b strings.Builder
	for _, e := range p.examples {
		b.WriteString(e.text)
	}
	return b.String()
}

// signatures returns the signatures of the functions and methods that chosen reports.
func (p publicPackage) signatures(chosen func(*doc.Func) bool) string {
	all, receivers := p.doc.Funcs, make(map[string]int)
	for _, typ := range p.doc.Types {
		all = append(append(all, typ.Funcs...), typ.Methods...)
		for _, method := range typ.Methods {
			receivers[method.Name]++
		}
	}

	// Names alone don't say which type's method is called, so only unique names count.
	var b strings.Builder
	for _, f := range all {
		if !chosen(f) {
			continue
		}
		b.WriteString(types.ExprString(f.Decl.Type) + "\n")
		if receivers[f.Name] == 1 { // or the name does not say which type's method it is
			b.WriteString(f.Recv + "\n")
		}
	}
	return b.String()
}

// publicPackages returns the packages of this module and of recipestest/ensemble, with their
// examples.
func publicPackages(t *testing.T) (packages []publicPackage) {
	t.Helper()
	for path, dir := range publicDirs(t) {
		if path == "otel" {
			continue
		}
		p, tests, fset := parse(t, path, dir, parser.ParseComments)
		var examples []example
		// doc.Examples gives a whole program, or a whole file, or neither.
		for _, e := range doc.Examples(tests...) {
			var code ast.Node
			if e.Play != nil {
				code = e.Play
			} else if file, ok := e.Code.(*ast.File); ok {
				code = file
			}
			var text bytes.Buffer
			if code != nil {
				require.NoError(t, format.Node(&text, fset, code))
			}
			examples = append(examples, example{e.Name, text.String()})
		}
		packages = append(packages, publicPackage{p, examples})
	}
	return packages
}

// parse returns what go doc knows about the package in dir, and the package's tests.
func parse(t *testing.T, path, dir string, mode parser.Mode) (p *doc.Package, tests []*ast.File, fset *token.FileSet) {
	t.Helper()
	sources := suite.Got(filepath.Glob(filepath.Join(dir, "*.go")))(t)
	fset = token.NewFileSet()
	var files []*ast.File
	for _, source := range sources {
		file := suite.Got(parser.ParseFile(fset, source, nil, mode))(t)
		if strings.HasSuffix(source, "_test.go") {
			tests = append(tests, file)
		} else {
			files = append(files, file)
		}
	}
	p = suite.Got(doc.NewFromFiles(fset, files, path))(t)
	return p, tests, fset
}
