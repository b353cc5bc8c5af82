package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// runtimeExports are the types of the packages that package mutant imports.
var runtimeExports = sync.OnceValues(func() (map[string]string, error) {
	_, exports, err := list(".", "./mutant")
	return exports, err
})

// declared is what the code of the tests uses.
const declared = `package x

type conn struct{}

func (conn) Sync(ctx, path any) error { return nil }
func (conn) Delete(ctx, path any, version int32) error { return nil }
func (conn) Check() *CheckVersionRequest { return nil }

type CheckVersionRequest struct { Path string; Version int32 }
type size int

const limit size = 7

var (
	s conn
	err error
	ok, other bool
	a, b int
	c chan int
	version int32
	op *CheckVersionRequest
	use = func(...any) {}
)

`

// mutantsOf returns the code of a function with its mutants.
func mutantsOf(t *testing.T, code string) (string, []mutation) {
	t.Helper()
	exports, err := runtimeExports()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "x.go")
	require.NoError(t, os.WriteFile(file, []byte(declared+code), 0o600))
	s := subject{dir: "x", path: "x", files: []string{file}, exports: exports}
	mutants, files, err := s.mutants()
	require.NoError(t, err)
	return strings.TrimPrefix(string(files[file]), declared), mutants
}

func TestEachRuleMakesItsMutants(t *testing.T) {
	for _, test := range []struct{ operators, code, becomes string }{
		{"drop", `close(c)`, `if !mutantOn(0) { close(c) }`},
		{"drop", `a = b`, `if !mutantOn(0) { a = b }`},
		{"drop", `a++`, `if !mutantOn(0) { a++ }`},
		{"drop", `c <- b`, `if !mutantOn(0) { c <- b }`},
		{"drop", `defer close(c)`, `if !mutantOn(0) { defer close(c) }`},
		{"drop", `go use()`, `if !mutantOn(0) { go use() }`},
		{"true, false", `if ok { return }`, `if mutantTrue(0, mutantFalse(1, ok)) { return }`},
		{"true, false", `switch { case ok: }`, `switch { case mutantTrue(0, mutantFalse(1, ok)): }`},
		{"false", `for ok {}`, `for mutantFalse(0, ok) {}`},
		{"true, true, false", `if ok && (other) {}`, `if mutantTrue(0, ok) && (mutantTrue(1, mutantFalse(2, other))) {}`},
		{"false, true, false", `if ok || other {}`, `if mutantFalse(0, ok) || mutantTrue(1, mutantFalse(2, other)) {}`},
		{"off by one", `ok := a < b; _ = ok`, `ok := (a < b || mutantOn(0) && (a) == (b)); _ = ok`},
		{"off by one", `ok := a >= b; _ = ok`, `ok := (a >= b && !(mutantOn(0) && (a) == (b))); _ = ok`},
		{"plus one, minus one", `x := 3; _ = x`, `x := mutantAdd[int](0, 1, mutantAdd[int](1, -1, 3)); _ = x`},
		{"plus one, minus one", `x := limit; _ = x`, `x := mutantAdd[size](0, 1, mutantAdd[size](1, -1, limit)); _ = x`},
		{"off by one, minus one", `ok := a < 3; _ = ok`,
			`ok := (a < mutantAdd[int](1, -1, 3) || mutantOn(0) && (a) == (3)); _ = ok`},
		{"off by one, minus one", `ok := 3 > a; _ = ok`,
			`ok := (mutantAdd[int](1, -1, 3) > a || mutantOn(0) && (3) == (a)); _ = ok`},
		{"any version", `x := s.Delete("", "", version); _ = x`, `x := s.Delete("", "", mutantVersion(0, version)); _ = x`},
		{"no sync", `x := s.Sync("", ""); _ = x`, `x := mutantSkip(0, func() error { return s.Sync("", "") }); _ = x`},
		{"no check", `x := s.Check(); _ = x`, `x := mutantCheck(0, s.Check()); _ = x`},
	} {
		// Offsets and nesting must be exact, so compare the whole text.
		changed, mutants := mutantsOf(t, "func f() {\n"+test.code+"\n}\n")
		var operators []string
		for _, m := range mutants {
			operators = append(operators, m.operator)
		}
		require.Equal(t, test.operators, strings.Join(operators, ", "), test.code)
		require.Equal(t, "func f() {\n"+test.becomes+"\n}\n", changed)
	}
}

func TestCodeWithoutAProtectionIsLeftAlone(t *testing.T) {
	for _, code := range []string{
		`panic("x")`, `for { break }`, `const x = 5; var y [limit]int; use := y; _ = use`, `x := []string{` + "5: \"\"}; _ = x",
		`x := s.Delete("", "", -version); _ = x`, `x := make([]int, a, 4); _ = x`, `return`,
	} {
		_, mutants := mutantsOf(t, "func f() {\n"+code+"\n}\n")
		require.Empty(t, mutants, code)
	}
}

func TestMutantsThatDoNotCompileAreLeftOut(t *testing.T) {
	_, mutants := mutantsOf(t, "func f() {\nsize := limit\nuse(size, limit)\n}\n") // there, size is no type
	require.Len(t, mutants, 2)
	require.Equal(t, "x f: minus one: limit in size := limit", mutants[1].name())
}

func TestNamesSurviveMoves(t *testing.T) {
	code := "func (conn) f() {\nif ok {\nreturn\n}\nif ok {\na =\n\tb\n}\n}\n"
	_, before := mutantsOf(t, code)
	_, after := mutantsOf(t, "func g() { a++ }\n\n\n"+code)
	var names []string
	for _, m := range before {
		names = append(names, m.name())
	}
	require.Equal(t, []string{
		"x conn.f: true: ok", "x conn.f: false: ok", "x conn.f: true: ok #2", "x conn.f: false: ok #2", "x conn.f: drop: a = b",
	}, names)
	for i, m := range after[1:] {
		require.Equal(t, names[i], m.name())
	}
}
