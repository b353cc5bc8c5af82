package main

import (
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func rewriteText(t *testing.T, body string) (string, []mutation) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.go")
	require.NoError(t, os.WriteFile(file, []byte("package x\n\nfunc f() {\n"+body+"\n}\n"), 0o600))
	r := rewriter{files: token.NewFileSet()}
	out, err := r.rewrite(file)
	require.NoError(t, err)
	return string(out), r.mutants
}

func TestEachRuleMakesItsMutant(t *testing.T) {
	for _, c := range []struct{ operator, code, becomes string }{
		{"no sync", `err = s.Sync(ctx, p)`, `err = mutant.Skip(0, func() error { return s.Sync(ctx, p) })`},
		{"any version", `x = T{Path: p, Version: v}`, `x = T{Path: p, Version: mutant.Version(0, v)}`},
		{"any version", `err = s.Delete(ctx, p, v)`, `err = s.Delete(ctx, p, mutant.Version(0, v))`},
		{"any version", `x, err = s.Set(ctx, p, d, 3)`, `x, err = s.Set(ctx, p, d, mutant.Version(0, 3))`},
		{"no check", `ops = append(ops, l.Check())`, `ops = append(ops, mutant.Check(0, l.Check()))`},
		{"no check", `op = &zk.CheckVersionRequest{Path: p}`, `op = mutant.Check(0, &zk.CheckVersionRequest{Path: p})`},
		{"ignore", `if err != nil { return }`, `if mutant.False(0, err != nil) { return }`},
		{"ignore", `switch { case errors.Is(err, e): }`, `switch { case mutant.False(0, errors.Is(err, e)): }`},
		{"drop", `close(c)`, `if !mutant.On(0) { close(c) }`},
		{"drop deferred", `defer cancel()`, `if !mutant.On(0) { defer cancel() }`},
		{"off by one", `x = a < b`, `x = (a < b || mutant.On(0) && (a) == (b))`},
		{"off by one", `x = a >= b`, `x = (a >= b && !(mutant.On(0) && (a) == (b)))`},
	} {
		out, mutants := rewriteText(t, c.code)
		require.Len(t, mutants, 1, c.code)
		require.Equal(t, c.operator, mutants[0].operator)
		require.Contains(t, out, "\n"+c.becomes+"\n")
	}
}

func TestCodeWithoutAProtectionIsLeftAlone(t *testing.T) {
	for _, code := range []string{
		`mu.Lock(); defer mu.Unlock()`, `if ok { return }`, `if err == nil { return }`,
		`x = T{Version: -1}`, `err = s.Delete(ctx, p, -1)`, `x = slices.Delete(x, i, i+1)`, `switch err { case e: }`, `panic("x")`,
	} {
		out, mutants := rewriteText(t, code)
		require.Empty(t, mutants, code)
		require.NotContains(t, out, "mutant.")
	}
}

func TestMutantsInsideEachOther(t *testing.T) {
	out, mutants := rewriteText(t, `if err := s.Delete(ctx, p, v); err != nil && len(x) < 3 { close(c) }`)
	require.Len(t, mutants, 4)
	require.Contains(t, out, `mutant.Version(`)
	require.Regexp(t, regexp.MustCompile(`mutant\.False\(\d, err != nil\) && \(len\(x\) < 3 \|\| `), out)
}

func TestMutantsHaveNamesOfTheirOwn(t *testing.T) {
	_, mutants := rewriteText(t, `if err != nil { return }; if err != nil { return }`)
	require.Len(t, mutants, 2)
	require.Equal(t, mutants[0].name()+" (2)", mutants[1].name())
}

// A survivor that was accepted is accepted for code that still exists.
func TestAcceptedMutantsExist(t *testing.T) {
	t.Chdir("../../..")
	accepted, err := read(acceptedFile)
	require.NoError(t, err)
	for _, s := range subjects {
		mutants, _, err := s.mutants(regexp.MustCompile(""))
		require.NoError(t, err)
		require.NotEmpty(t, mutants, s.dir)
		for _, m := range mutants {
			delete(accepted, m.name())
		}
	}
	for name := range accepted {
		t.Errorf("accepted.txt names a mutant that does not exist: %s", name)
	}
}
