package zkrecipes_test

import (
	"bytes"
	"context"
	"flag"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

var record = flag.Bool("record", false, "record the exported API in directory api")

type (
	// held is what every acquired value has.
	held interface {
		Done() <-chan struct{}
		Err() error
		Context(parent context.Context) (context.Context, context.CancelFunc)
		Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error)
	}
	// fenced is an acquired value with one node.
	fenced interface {
		held
		Token() int64
		Check() *zk.CheckVersionRequest
	}
	// node is an acquired value whose node has a name.
	node interface {
		fenced
		Node() string
	}
)

var (
	_ held   = (*lock.Leases)(nil)
	_ fenced = (*queue.Item)(nil)
	_        = []node{
		(*lock.Lease)(nil), (*rwlock.Lease)(nil), (*semaphore.Permit)(nil), (*election.Term)(nil),
		(*group.Assignment)(nil), (*once.Run)(nil), (*doublebarrier.Entry)(nil),
	}
)

// A change of the exported API shows in a diff of directory api, so none happens unnoticed.
func TestExportedAPIIsAsRecorded(t *testing.T) {
	recorded := suite.Got(filepath.Glob("api/*.txt"))(t)
	// Remove the files of packages that are gone, too.
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
	// A file without a package is as wrong as a package without a file.
	if !*record {
		assert.ElementsMatch(t, recorded, files, "make api drops what is gone")
	}
}

// Users read the page of package protocol from its beginning to its end.
func TestPageForUsersIsShort(t *testing.T) {
	text := suite.Got(os.ReadFile("api/protocol.txt"))(t)
	names := regexp.MustCompile(`(?m)^(?:func|type|const|var) [A-Z]|^\t(?:Err|Event)[A-Z]\w*(?: EventKind)?(?: =|$)|^\t(?:Connected|Suspended|Lost|Closed)\b`).FindAllString(string(text), -1)
	require.LessOrEqual(t, len(names), 66, "methods not counted")
	require.Greater(t, len(names), 50)
}

// goList returns the name, the import path and the directory of each package of this module.
var goList = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-f", "{{.Name}} {{.ImportPath}} {{.Dir}}", "./...").Output()
	return string(out), err
})

// publicDirs returns the directories of the packages that users may import, by the path below the
// module.
func publicDirs(t *testing.T) map[string]string {
	t.Helper()
	list := suite.Got(goList())(t)

	dirs := make(map[string]string)
	for line := range strings.Lines(list) {
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
	p, _, fset := parse(t, dir, dir, parser.SkipObjectResolution) // without comments

	var b bytes.Buffer
	write := func(d ast.Decl) {
		require.NoError(t, format.Node(&b, fset, d))
		b.WriteString("\n")
	}
	values := func(all []*doc.Value) {
		for _, v := range all {
			write(v.Decl)
		}
	}
	functions := func(all []*doc.Func) {
		for _, f := range all {
			write(f.Decl)
		}
	}

	// In the order of the page: constants, variables, functions, and then each type with its own.
	values(slices.Concat(p.Consts, p.Vars))
	functions(p.Funcs)
	for _, typ := range p.Types {
		b.WriteString("\n")
		write(typ.Decl)
		values(slices.Concat(typ.Consts, typ.Vars))
		functions(slices.Concat(typ.Funcs, typ.Methods))
	}
	return b.String()
}
