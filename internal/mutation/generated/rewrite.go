package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
)

// A mutation is one small change of the code, of which a test should notice.
type mutation struct {
	number   int
	operator string // which kind of change
	place    string // file:line
	function string
	code     string // the first line of what is changed
	nth      int    // of those that are the same otherwise; the first is 1
}

// name identifies a mutation for as long as its function is not changed much.
func (m mutation) name() string {
	file, _, _ := strings.Cut(m.place, ":")
	name := fmt.Sprintf("%s %s %s: %s", m.operator, file, m.function, m.code)
	if m.nth > 1 {
		name += fmt.Sprintf(" (%d)", m.nth)
	}
	return name
}

// A rewriter puts calls of package mutant into files. The changed files do what the original ones
// do, as long as no mutant is active.
type rewriter struct {
	files    *token.FileSet
	mutants  []mutation
	file     string
	source   []byte
	function string
	names    map[string]int // how often each was given
	inserts  []insert
}

// An insert is text to be put before the byte at an offset.
type insert struct {
	offset int
	length int  // of the node that it belongs to
	end    bool // it stands at the end of that node
	number int  // of the mutant
	text   string
}

// rewrite returns a file with all its mutants.
func (r *rewriter) rewrite(file string) ([]byte, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.ParseFile(r.files, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}

	r.file, r.source, r.inserts = file, source, nil
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			r.function = f.Name.Name
			ast.Inspect(f.Body, r.visit)
		}
	}
	if len(r.inserts) == 0 {
		return source, nil
	}
	r.inserts = append(r.inserts, insert{
		offset: r.offset(parsed.Name.End()), end: true,
		text: `; import mutant "github.com/zkrecipes/zkrecipes/internal/mutation/mutant"`,
	})
	return r.apply(), nil
}

// visit adds the mutants of one node.
func (r *rewriter) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		r.condition(n.Cond)
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, c := range n.Body.List {
				for _, condition := range c.(*ast.CaseClause).List {
					r.condition(condition)
				}
			}
		}
	case *ast.BinaryExpr:
		r.order(n)
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); ok && dispensable(call) {
			r.wrap("drop", n, "if !mutant.On(%d) { ", " }")
		}
	case *ast.DeferStmt:
		if dispensable(n.Call) {
			// What is deferred is evaluated at once, so the call itself is all that may be dropped.
			r.wrap("drop deferred", n, "if !mutant.On(%d) { ", " }")
		}
	case *ast.CallExpr:
		r.call(n)
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Version" && !isAny(n.Value) {
			r.wrap("any version", n.Value, "mutant.Version(%d, ", ")")
		}
	case *ast.UnaryExpr:
		if c, ok := n.X.(*ast.CompositeLit); ok && n.Op == token.AND && selected(c.Type) == "CheckVersionRequest" {
			r.wrap("no check", n, "mutant.Check(%d, ", ")")
		}
	}
	return true
}

// condition adds mutants that never take a branch: that of an error, above all.
func (r *rewriter) condition(e ast.Expr) {
	text := r.text(e)
	if b, ok := e.(*ast.BinaryExpr); ok && (b.Op == token.LAND || b.Op == token.LOR) {
		r.condition(b.X)
		r.condition(b.Y)
		return
	}
	if strings.Contains(text, "err") || strings.Contains(text, "failed") || strings.Contains(text, "Is(") {
		if !strings.Contains(text, "err == nil") {
			r.wrap("ignore", e, "mutant.False(%d, ", ")")
		}
	}
}

// order adds mutants that are off by one.
func (r *rewriter) order(b *ast.BinaryExpr) {
	x, y := r.text(b.X), r.text(b.Y)
	switch b.Op {
	case token.LSS, token.GTR:
		r.wrap("off by one", b, "(", " || mutant.On(%d) && ("+x+") == ("+y+"))")
	case token.LEQ, token.GEQ:
		r.wrap("off by one", b, "(", " && !(mutant.On(%d) && ("+x+") == ("+y+")))")
	}
}

// call adds mutants that leave a request out, or do it at any version.
func (r *rewriter) call(c *ast.CallExpr) {
	name := selected(c.Fun)
	if f, ok := c.Fun.(*ast.SelectorExpr); ok && r.text(f.X) == "slices" {
		return // slices.Delete takes no version
	}
	switch {
	case name == "Sync" && len(c.Args) == 2:
		r.wrap("no sync", c, "mutant.Skip(%d, func() error { return ", " })")
	case name == "Check" && len(c.Args) == 0:
		r.wrap("no check", c, "mutant.Check(%d, ", ")")
	case name == "Delete" && len(c.Args) == 3, name == "Set" && len(c.Args) == 4:
		if last := c.Args[len(c.Args)-1]; !isAny(last) {
			r.wrap("any version", last, "mutant.Version(%d, ", ")")
		}
	}
}

// wrap notes a mutant whose node is put between two texts, one of which has a place for its number.
func (r *rewriter) wrap(operator string, n ast.Node, before, after string) {
	from, to := r.offset(n.Pos()), r.offset(n.End())
	code, _, _ := strings.Cut(r.text(n), "\n")
	number := len(r.mutants)
	m := mutation{
		number: number, operator: operator, function: r.function, code: code, nth: 1,
		place: fmt.Sprintf("%s:%d", r.file, r.files.Position(n.Pos()).Line),
	}
	if r.names == nil {
		r.names = make(map[string]int)
	}
	name := m.name()
	r.names[name]++
	m.nth = r.names[name]
	r.mutants = append(r.mutants, m)
	numbered := func(text string) string { return strings.Replace(text, "%d", fmt.Sprint(number), 1) }
	r.inserts = append(r.inserts,
		insert{from, to - from, false, number, numbered(before)},
		insert{to, to - from, true, number, numbered(after)})
}

// apply returns the source with all inserts. Those of an outer node stand around those of an inner
// one.
func (r *rewriter) apply() []byte {
	slices.SortStableFunc(r.inserts, func(a, b insert) int {
		switch {
		case a.offset != b.offset:
			return cmp.Compare(a.offset, b.offset)
		case a.end != b.end && a.end:
			return -1
		case a.end != b.end:
			return 1
		case a.end: // of two mutants of one node, the first stands around the second
			return cmp.Or(cmp.Compare(a.length, b.length), cmp.Compare(b.number, a.number))
		}
		return cmp.Or(cmp.Compare(b.length, a.length), cmp.Compare(a.number, b.number))
	})

	var out bytes.Buffer
	at := 0
	for _, in := range r.inserts {
		out.Write(r.source[at:in.offset])
		out.WriteString(in.text)
		at = in.offset
	}
	out.Write(r.source[at:])
	return out.Bytes()
}

func (r *rewriter) offset(p token.Pos) int { return r.files.Position(p).Offset }

func (r *rewriter) text(n ast.Node) string {
	return string(r.source[r.offset(n.Pos()):r.offset(n.End())])
}

// selected returns the name that a selector selects, or an empty one.
func selected(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		return s.Sel.Name
	}
	return ""
}

// isAny reports whether a version fits any.
func isAny(e ast.Expr) bool {
	u, ok := e.(*ast.UnaryExpr)
	return ok && u.Op == token.SUB
}

// dispensable reports whether a program without this call compiles, and does not merely hang or
// race. That tells nothing about the tests.
func dispensable(c *ast.CallExpr) bool {
	switch name := selected(c.Fun); name {
	case "Lock", "Unlock", "RLock", "RUnlock", "Add", "Wait", "Stop", "Done", "Debug", "Info", "Warn", "Error", "Log", "Report":
		return false
	}
	id, ok := c.Fun.(*ast.Ident)
	return !ok || id.Name != "panic"
}
