package laws

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// silent are the verbs that send nothing, so that nothing can go wrong with them.
var silent = []string{
	"recipe.Ended", "recipe.Linger", "recipe.Recipe.ValidateCall", "recipe.Recipe.Waited", "recipe.Recipe.Waiting",
	"recipe.Watch.AfterChange",
}

// Each exported verb has a row, which has its name and then, perhaps, what is special.
func TestTableHasEachVerb(t *testing.T) {
	rows := make(map[string]bool)
	names := make(map[string]bool)
	for _, row := range table {
		require.False(t, names[row.Name], "%s is there twice", row.Name)
		verb, _, _ := strings.Cut(row.Name, " ")
		rows[verb], names[row.Name] = true, true
	}
	all := []string{"lock.Lease.Revoked"}
	for _, dir := range []string{
		"barrier", "doublebarrier", "election", "group", "lock", "once", "protocol", "protocol/line", "protocol/recipe", "queue", "rwlock", "semaphore", "value",
	} {
		all = append(all, exportedVerbs(t, dir)...)
	}
	for _, verb := range all {
		if !slices.Contains(silent, verb) {
			require.True(t, rows[verb], "%s has no row in the table", verb)
		}
		delete(rows, verb)
	}
	require.Empty(t, rows, "rows of verbs that do not exist")
}

// exportedVerbs returns the exported functions and methods of a package that take a context first,
// as in "lock.Mutex.Lock". A method Context only derives one.
func exportedVerbs(t *testing.T, dir string) (verbs []string) {
	files, err := filepath.Glob(filepath.Join("..", "..", "..", dir, "*.go"))
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() || f.Name.Name == "Context" || !takesContext(f.Type) {
				continue
			}
			verb := path.Base(dir) + "."
			if f.Recv != nil {
				of := f.Recv.List[0].Type
				if p, ok := of.(*ast.StarExpr); ok {
					of = p.X
				}
				typ, ok := of.(*ast.Ident)
				if !ok || !typ.IsExported() {
					continue
				}
				verb += typ.Name + "."
			}
			verbs = append(verbs, verb+f.Name.Name)
		}
	}
	require.NotEmpty(t, verbs, dir)
	return verbs
}

func takesContext(f *ast.FuncType) bool {
	if len(f.Params.List) == 0 {
		return false
	}
	typ, ok := f.Params.List[0].Type.(*ast.SelectorExpr)
	return ok && typ.Sel.Name == "Context"
}
