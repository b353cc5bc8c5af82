package trust

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only Elapsed may look at the wall clock alone, which can be set back: it takes the longer of the
// two times. Whatever drops the monotonic reading elsewhere would let a clock that is set back
// prolong trust. Simulations cannot show that, as their clients have one clock.
func TestNothingElseDropsTheMonotonicClock(t *testing.T) {
	drops := []string{"Unix", "UnixMilli", "UnixMicro", "UnixNano", "UTC", "Local", "In", "AddDate", "Date", "Clock", "Format", "MarshalText", "MarshalBinary", "Wall"}
	files := token.NewFileSet()
	var names []string
	for _, dir := range []string{".", "../../protocol"} {
		inside, err := filepath.Glob(dir + "/*.go")
		require.NoError(t, err)
		names = append(names, inside...)
	}

	found := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, name, nil, 0)
		require.NoError(t, err)
		for _, declared := range file.Decls {
			ast.Inspect(declared, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				method, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				rounds := slices.Contains([]string{"Round", "Truncate"}, method.Sel.Name) && len(call.Args) == 1 && isZero(call.Args[0])
				if !rounds && !slices.Contains(drops, method.Sel.Name) {
					return true
				}
				if f, ok := declared.(*ast.FuncDecl); ok && f.Name.Name == "Elapsed" {
					found++
				} else {
					t.Errorf("%v drops the monotonic clock", files.Position(call.Pos()))
				}
				return true
			})
		}
	}
	require.Equal(t, 2, found, "in Elapsed")
}

func isZero(e ast.Expr) bool {
	literal, ok := e.(*ast.BasicLit)
	return ok && literal.Value == "0"
}
