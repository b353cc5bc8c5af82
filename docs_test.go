package zkrecipes_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

func TestPackageDocumentationShowsTheExample(t *testing.T) {
	file := suite.Got(parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments))(t)

	var shown []string
	for _, block := range new(comment.Parser).Parse(file.Doc.Text()).Content {
		if code, ok := block.(*comment.Code); ok {
			shown = append(shown, code.Text)
		}
	}
	require.Len(t, shown, 1)
	require.Contains(t, read(t, "example_test.go"), shown[0])
}

// A Go snippet is a whole file, which has a package clause, or it is some declarations, which need
// no imports here. Files of one document with the same package clause are one package. Those that
// import testing are its tests, which have to pass. Of declarations, the functions that take a ctx
// and a client and return an error are called, and have to return nil.
func TestGoSnippetsCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	importPaths := importPaths(t)
	clause := regexp.MustCompile(`(?m)\A(?://.*\n)*package ([a-z]+)$`)
	scratch := t.TempDir()

	// The snippets become packages of this module, which exist only in an overlay. Error messages
	// have the places in the documents.
	server := suite.Got(embedded.Start(embedded.Config{}))(t)
	t.Cleanup(func() { server.Close() })
	sources := make(map[string]string)
	programs, libraries, tested := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	add := func(pkg, file, code string) {
		source := filepath.Join(scratch, pkg+"-"+file)
		require.NoError(t, os.WriteFile(source, []byte(code), 0o600))
		sources[filepath.Join("snippets", pkg, file)] = source
	}
	calls := make(map[string]string) // of packages, in Go
	for _, doc := range documents(t) {
		for line, code := range snippets(t, doc, "go") {
			code = strings.ReplaceAll(code, `"127.0.0.1:2181"`, fmt.Sprintf("%q", server.ConnectString()))
			position := fmt.Sprintf("//line %s:%d\n", doc, line)
			pkg, file := fmt.Sprintf("%s-%d", plain(doc), line), fmt.Sprintf("line%d.go", line)
			kind := libraries
			// What kind of snippet is it: declarations, tests, a program, or files of a package?
			switch match := clause.FindStringSubmatch(code); {
			case match == nil:
				position = "package snippet\n" + imports(code, importPaths) + position
				if called := callsOf(code); called != "" {
					add(pkg, "calls.go", "package snippet\n\nvar Calls = []any{"+called+"}\n")
					calls[pkg] = called
				}
			case strings.Contains(code, "\t\"testing\"\n"):
				pkg, file, kind = plain(doc)+"-"+match[1], fmt.Sprintf("line%d_test.go", line), tested
			case match[1] == "main":
				kind = programs
			default:
				pkg = plain(doc) + "-" + match[1]
			}
			add(pkg, file, position+code)
			kind["./snippets/"+pkg] = true
		}
	}
	add("calls", "calls_test.go", testOf(calls)) // one program, because each takes a second to link
	tested["./snippets/calls"] = true

	overlay := suite.Got(json.Marshal(map[string]any{"Replace": sources}))(t)
	overlayFile := filepath.Join(scratch, "overlay.json")
	require.NoError(t, os.WriteFile(overlayFile, overlay, 0o600))
	built := t.TempDir() + string(filepath.Separator)
	build := func(packages map[string]bool, args ...string) {
		args = append(args, "-buildvcs=false", "-ldflags=-s -w", "-overlay", overlayFile)
		args = append(args, slices.Collect(maps.Keys(packages))...)
		out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	// One build for each kind, because each start of the go command takes long.
	build(libraries, "build")
	build(programs, "build", "-o", built)
	build(tested, "test", "-c", "-vet=off", "-o", built)

	t.Run("README's programs run", func(t *testing.T) {
		found := suite.Got(filepath.Glob(built + "README-md-*"))(t)
		require.Len(t, found, 2, "README has a lock, and a whole program")
		slices.SortFunc(found, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })

		for _, program := range []struct{ path, args, says string }{
			{found[0], "", "this process has the lock, with token "},
			{found[1], server.ConnectString(), "report written"},
			{found[1], server.ConnectString(), "another machine has written the report"},
		} {
			run := exec.CommandContext(t.Context(), program.path, strings.Fields(program.args)...)
			out, err := run.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), program.says)
		}

		// Without arguments, the program says how to call it.
		out, err := exec.CommandContext(t.Context(), found[1]).CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "usage: ")
	})

	for pkg := range tested {
		t.Run("tests of "+pkg+" pass", func(t *testing.T) {
			t.Parallel()
			run := exec.CommandContext(t.Context(), built+filepath.Base(pkg)+".test", "-test.timeout=5m")
			run.Dir = scratch // not that of the package, which does not exist
			out, err := run.CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
	}
}

// callsOf returns the names of the functions of a snippet which need a client and nothing else.
func callsOf(code string) string {
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^func (\w+)\(ctx context\.Context, client \*protocol\.Client\) error`).FindAllStringSubmatch(code, -1) {
		names = append(names, match[1])
	}
	return strings.Join(names, ", ")
}

// testOf returns tests that call the functions of these packages.
func testOf(calls map[string]string) string {
	var imports, tests strings.Builder
	for i, pkg := range slices.Sorted(maps.Keys(calls)) {
		fmt.Fprintf(&imports, "\ts%d %q\n", i, "github.com/zkrecipes/zkrecipes/snippets/"+pkg)
		fmt.Fprintf(&tests, "\t%q: s%d.Calls,\n", pkg+" "+calls[pkg], i)
	}
	return `package calls

import (
	"context"
	"testing"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
` + imports.String() + `)

func TestCalls(t *testing.T) {
	for name, calls := range map[string][]any{
` + tests.String() + `	} {
		for _, call := range calls {
			f := call.(func(context.Context, *protocol.Client) error)
			if err := f(t.Context(), recipestest.Start(t).Client(t)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
`
}

// A block that is indented, or of another language, would not be looked at.
func TestBlocksAreOfAKnownKind(t *testing.T) {
	fence := regexp.MustCompile("(?m)^([ \t]*)(```|~~~)[ \t]*([a-zA-Z]*).*$")
	for _, doc := range documents(t) {
		open := false
		for _, match := range fence.FindAllStringSubmatch(read(t, doc), -1) {
			open = !open
			assert.Empty(t, match[1], "%s: %q is indented", doc, match[0])
			if open {
				assert.Contains(t, []string{"go", "sh", "text", "json", "yaml", "ini", "mermaid", ""}, match[3], doc)
			} else {
				assert.Equal(t, "```", match[0], "%s: the end of a block", doc)
			}
		}
		assert.False(t, open, "%s: a block does not end", doc)
	}
}

// plain makes the name of a directory of a document's path.
func plain(doc string) string { return strings.NewReplacer("/", "-", ".", "-").Replace(doc) }

func TestShellSnippetsNameWhatExists(t *testing.T) {
	targets := regexp.MustCompile(`(?m)^[a-z]+:`).FindAllString(read(t, "Makefile"), -1)
	environment := regexp.MustCompile(`^[A-Z_]+=`)

	for _, doc := range documents(t) {
		require.NotRegexp(t, `(?m)^(    |\t)(go (get|run|test)|make) `, read(t, doc), "%s: a command that is not in a block of sh", doc)
		for line, commands := range snippets(t, doc, "sh") {
			for command := range strings.Lines(commands) {
				command, _, _ = strings.Cut(command, "#")
				words := slices.DeleteFunc(strings.Fields(command), environment.MatchString)
				if len(words) == 0 {
					continue
				}

				at := fmt.Sprintf("%s:%d: %s", doc, line, command)
				switch words[0] {
				case "go":
					checkGoCommand(t, words[1:], at)
				case "zkr", "docker": // which are not here
				case "make":
					for _, target := range words[1:] {
						assert.Contains(t, targets, target+":", at)
					}
				default:
					assert.FileExists(t, words[0], at)
				}
			}
		}
	}
}

// checkGoCommand looks for the directories of the packages that a go command names.
func checkGoCommand(t *testing.T, args []string, at string) {
	t.Helper()
	assert.Contains(t, []string{"get", "install", "mod", "run", "test"}, args[0], at)

	dir := ""
	for i, arg := range args {
		switch {
		case i > 0 && args[i-1] == "-C":
			dir = arg
		case arg == ".", strings.HasPrefix(arg, "./"):
			dir := filepath.Join(dir, strings.TrimSuffix(arg, "..."))
			assert.DirExists(t, dir, at)
			if args[0] == "run" && arg != "." { // the reader's own
				assert.FileExists(t, filepath.Join(dir, "main.go"), at)
			}
		}
	}
}

func TestRelativeLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?[^)]*\)`)
	for _, doc := range documents(t) {
		for _, match := range link.FindAllStringSubmatch(read(t, doc), -1) {
			target, anchor := filepath.Join(filepath.Dir(doc), match[1]), match[2]
			if match[1] == "" {
				target = doc
			}
			if strings.Contains(match[1], "://") {
				continue
			}
			if _, err := os.Stat(target); !assert.NoError(t, err, doc) || anchor == "" {
				continue
			}
			assert.Contains(t, anchors(t, target), anchor, "%s: %s", doc, match[0])
		}
	}
}

// anchors returns what GitHub makes of the headings of a document.
func anchors(t *testing.T, doc string) (found []string) {
	t.Helper()
	drop := regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(read(t, doc), -1) {
		plain := drop.ReplaceAllString(strings.ToLower(heading[1]), "")
		found = append(found, strings.ReplaceAll(plain, " ", "-"))
	}
	return found
}

// Names of our packages that stand in backticks, such as `lock.Mutex` and `Mutex.Lock`, have to
// exist.
func TestDocumentsNameWhatExists(t *testing.T) {
	packages, members := declarations(t)
	name := regexp.MustCompile("`\\*?([A-Za-z]+)\\.([A-Z][A-Za-z]*)(?:\\.([A-Z][A-Za-z]*))?[^`\\n]*`")

	found := 0
	for _, doc := range documents(t) {
		if doc == "CHANGELOG.md" { // which names what was
			continue
		}
		for _, match := range name.FindAllStringSubmatch(read(t, doc), -1) {
			declared, ours := packages[match[1]]
			if !ours {
				if capital := match[1][0] < 'a'; capital {
					found++
					assert.Contains(t, members, strings.ToLower(match[1])+"."+match[2], "%s: %s", doc, match[0])
				}
				continue
			}

			found++
			assert.Contains(t, declared, match[2], "%s: %s", doc, match[0])
			if match[3] != "" {
				assert.Contains(t, members, strings.ToLower(match[2])+"."+match[3], "%s: %s", doc, match[0])
			}
		}
	}
	require.Positive(t, found)
}

// Tests that stand in backticks, such as those of SECURITY.md, have to exist.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	defined := make(map[string]bool)
	for _, path := range files(t, "_test.go") {
		for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(read(t, path), -1) {
			defined[match[1]] = true
		}
	}

	for _, doc := range documents(t) {
		for _, match := range regexp.MustCompile("`(Test[A-Z]\\w+)`").FindAllStringSubmatch(read(t, doc), -1) {
			if doc != "CONTRIBUTING.md" { // whose name is an example
				assert.True(t, defined[match[1]], "%s: %s", doc, match[1])
			}
		}
	}
}

// What SECURITY.md says of an attacker, and of each thing to configure, a test shows. (Only of
// someone who controls the client's host there is nothing to show.)
func TestPromisesOfSecurityNameTests(t *testing.T) {
	promises := 0
	for _, promise := range regexp.MustCompile(`(?m)^\| (?:has a|may|writes|reads) .*$|^- \*\*[^\n]*(?:\n  .*)*`).FindAllString(read(t, "SECURITY.md"), -1) {
		promises++
		assert.Regexp(t, "`Test[A-Z]\\w+`", promise)
	}
	assert.Greater(t, promises, 9)
}

// declarations returns what our packages declare, by their names, and the methods and fields of all
// types. A type stands there in lower case: a type that is embedded may have the method.
func declarations(t *testing.T) (packages map[string]map[string]bool, members map[string]bool) {
	t.Helper()
	list := suite.Got(goList())(t)

	packages, members = make(map[string]map[string]bool), make(map[string]bool)
	aliases := make(map[string]string)                                            // by what they stand for
	for line := range strings.Lines(list + "ensemble - recipestest/ensemble\n") { // which is a module of its own
		fields := strings.SplitN(strings.TrimSpace(line), " ", 3)
		name, dir := fields[0], fields[2]
		declared := make(map[string]bool)
		packages[name] = declared

		sources := suite.Got(filepath.Glob(filepath.Join(dir, "*.go")))(t)
		for _, source := range sources {
			file := suite.Got(parser.ParseFile(token.NewFileSet(), source, nil, 0))(t)
			for _, d := range file.Decls {
				declare(d, declared, members)
			}
			for _, alias := range regexp.MustCompile(`(?m)^type (\w+) = (\w+)`).FindAllStringSubmatch(read(t, source), -1) {
				aliases[strings.ToLower(alias[2])] = strings.ToLower(alias[1])
			}
		}
	}
	for member := range maps.Clone(members) {
		base, name, _ := strings.Cut(member, ".")
		if alias := aliases[base]; alias != "" {
			members[alias+"."+name] = true
		}
	}
	return packages, members
}

func declare(d ast.Decl, declared, members map[string]bool) {
	if f, ok := d.(*ast.FuncDecl); ok {
		if f.Recv == nil {
			declared[f.Name.Name] = true
			return
		}
		receiver := strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*")
		receiver, _, _ = strings.Cut(receiver, "[")
		members[strings.ToLower(receiver)+"."+f.Name.Name] = true
		return
	}

	for _, spec := range d.(*ast.GenDecl).Specs {
		switch spec := spec.(type) {
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				declared[name.Name] = true
			}
		case *ast.TypeSpec:
			declared[spec.Name.Name] = true
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range s.Fields.List {
					for _, name := range field.Names {
						members[strings.ToLower(spec.Name.Name)+"."+name.Name] = true
					}
				}
			}
		}
	}
}

// documents returns the paths of all Markdown files.
func documents(t *testing.T) []string { return files(t, ".md") }

// files returns the paths of all files whose names end with suffix, but not of those in hidden
// directories.
func files(t *testing.T, suffix string) (found []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && len(path) > 1 && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, suffix) {
			found = append(found, filepath.ToSlash(path))
		}
		return err
	}))
	return found
}

// snippets returns the fenced blocks of doc in language, by the line that they begin with.
func snippets(t *testing.T, doc, language string) map[int]string {
	t.Helper()
	text := read(t, doc)
	found := make(map[int]string)

	for _, at := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatchIndex(text, -1) {
		found[1+strings.Count(text[:at[2]], "\n")] = text[at[2]:at[3]]
	}
	return found
}

// importPaths returns what declarations may import, by the name of the package.
func importPaths(t *testing.T) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Name}} {{.ImportPath}}",
		"./...", "./recipestest/ensemble", "context", "crypto/tls", "database/sql", "errors", "fmt", "log", "log/slog", "net", "net/http", "os",
		"os/signal", "slices", "strconv", "strings", "sync", "syscall", "testing", "time",
		"github.com/cenkalti/backoff/v4", "github.com/go-zookeeper/zk").Output()
	require.NoError(t, err)

	paths := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		name, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		paths[name] = path
	}
	return paths
}

// imports returns the import declarations that code needs.
func imports(code string, paths map[string]string) string {
	used := make(map[string]bool)
	for _, selector := range regexp.MustCompile(`\b([a-z]+)\.[A-Z]`).FindAllStringSubmatch(code, -1) {
		if path, ok := paths[selector[1]]; ok {
			used[path] = true
		}
	}

	var b strings.Builder
	for path := range used {
		fmt.Fprintf(&b, "import %q\n", path)
	}
	return b.String()
}

func read(t *testing.T, file string) string {
	t.Helper()
	text := suite.Got(os.ReadFile(file))(t)
	return string(text)
}
