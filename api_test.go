package zkrecipes_test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var record = flag.Bool("record", false, "record the exported API in directory api")

// A change of the exported API shows in a diff of directory api, so none happens unnoticed.
func TestExportedAPIIsAsRecorded(t *testing.T) {
	recorded, err := filepath.Glob("api/*.txt")
	require.NoError(t, err)
	if *record {
		for _, file := range recorded {
			require.NoError(t, os.Remove(file))
		}
		require.NoError(t, os.MkdirAll("api", 0o755))
	}

	var files []string
	for path, dir := range publicDirs(t) {
		file := filepath.Join("api", strings.ReplaceAll(path, "/", "-")+".txt")
		files = append(files, file)
		api := exportedAPI(t, dir)
		if *record {
			require.NoError(t, os.WriteFile(file, []byte(api), 0o644))
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err, "make api records it")
		assert.Equal(t, string(text), api, "the API of %s has changed: make api records it, CHANGELOG.md names what breaks programs", path)
	}
	if !*record {
		assert.ElementsMatch(t, recorded, files, "make api drops what is gone")
	}
}

// Users read the page of package protocol from its beginning to its end.
func TestPageForUsersIsShort(t *testing.T) {
	text, err := os.ReadFile("api/protocol.txt")
	require.NoError(t, err)
	names := regexp.MustCompile(`(?m)^(?:func|type|const|var) [A-Z]|^\t(?:Err|Event)[A-Z]\w*(?: EventKind)?(?: =|$)|^\t(?:Connected|Suspended|Lost|Closed)\b`).FindAllString(string(text), -1)
	require.LessOrEqual(t, len(names), 66, "methods not counted")
	require.Greater(t, len(names), 50)
}

// publicDirs returns the directories of the packages that users may import, by the path below the
// module.
func publicDirs(t *testing.T) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Name}} {{.ImportPath}} {{.Dir}}", "./...").Output()
	require.NoError(t, err)

	dirs := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		fields := strings.SplitN(strings.TrimSpace(line), " ", 3) // the directory may have spaces
		_, path, ok := strings.Cut(fields[1], "zkrecipes/zkrecipes/")
		if ok && fields[0] != "main" && !strings.Contains(fields[1]+"/", "/internal/") {
			dirs[path] = fields[2]
		}
	}
	require.NotEmpty(t, dirs)
	dirs["otel"], dirs["recipestest/ensemble"] = "otel", "recipestest/ensemble" // modules of their own, which go list leaves out
	return dirs
}

// exportedAPI returns the exported declarations of a package, without comments and bodies.
func exportedAPI(t *testing.T, dir string) string {
	t.Helper()
	fset := token.NewFileSet()
	sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	var files []*ast.File
	for _, source := range sources {
		if !strings.HasSuffix(source, "_test.go") {
			file, err := parser.ParseFile(fset, source, nil, parser.ParseComments)
			require.NoError(t, err)
			files = append(files, file)
		}
	}
	p, err := doc.NewFromFiles(fset, files, dir)
	require.NoError(t, err)

	var b bytes.Buffer
	write := func(d ast.Decl) {
		ast.Inspect(d, withoutComments)
		require.NoError(t, format.Node(&b, fset, d))
		b.WriteString("\n")
	}
	values := func(all ...[]*doc.Value) {
		for _, values := range all {
			for _, v := range values {
				write(v.Decl)
			}
		}
	}
	functions := func(all ...[]*doc.Func) {
		for _, functions := range all {
			for _, f := range functions {
				write(f.Decl)
			}
		}
	}

	values(p.Consts, p.Vars)
	functions(p.Funcs)
	for _, typ := range p.Types {
		b.WriteString("\n")
		write(typ.Decl)
		values(typ.Consts, typ.Vars)
		functions(typ.Funcs, typ.Methods)
	}
	return b.String()
}

func withoutComments(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		n.Doc = nil
	case *ast.FuncDecl:
		n.Doc, n.Body = nil, nil
	case *ast.ValueSpec:
		n.Doc, n.Comment = nil, nil
	case *ast.TypeSpec:
		n.Doc, n.Comment = nil, nil
	case *ast.Field:
		n.Doc, n.Comment = nil, nil
	}
	return true
}
