package zkrecipes_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/errors.md has each error that users can match, and each warning that a recipe, a client or
// the embedded server logs.
func TestErrorsAndWarningsAreExplained(t *testing.T) {
	page := read(t, "docs/errors.md")
	explained := func(what string) {
		assert.True(t, strings.Contains(page, "`"+what+"`"), "docs/errors.md does not explain %s", what)
	}
	exported := regexp.MustCompile(`^Err[A-Z]|^[A-Z].*Error$`)
	errs, warnings := 0, 0
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if entry.IsDir() && (isModule(path) || path == "internal/suite") {
			return fs.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}

		// Errors that users can match are declared at the top of packages that they can import.
		for _, d := range file.Decls {
			declared := make(map[string]bool)
			declare(d, declared, make(map[string]bool))
			for name := range declared {
				if exported.MatchString(name) && !strings.HasPrefix(path, "internal") {
					errs++
					explained(file.Name.Name + "." + name)
				}
			}
		}
		// Warnings are string literals, so the page can quote them.
		ast.Inspect(file, func(n ast.Node) bool {
			if message := warning(n); message != "" {
				warnings++
				explained(message)
			}
			return true
		})
		return nil
	}))
	// If the search broke, it would find too few.
	assert.Greater(t, errs, 25)
	assert.Greater(t, warnings, 25)
}

// isModule reports whether dir is the root of another module, or hidden.
func isModule(dir string) bool {
	found, _ := filepath.Glob(filepath.Join(dir, "go.mod"))
	return dir != "." && (len(found) > 0 || strings.HasPrefix(filepath.Base(dir), "."))
}

// warning returns the message that n logs at level warn or error.
func warning(n ast.Node) string {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) < 2 {
		return ""
	}
	verb, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || verb.Sel.Name != "Warn" && verb.Sel.Name != "Error" {
		return ""
	}
	literal, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return ""
	}
	message, _ := strconv.Unquote(literal.Value)
	return message
}
