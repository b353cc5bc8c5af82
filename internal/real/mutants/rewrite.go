package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strconv"
	"strings"
)

// A mutation is one small change of the code that a test should notice.
type mutation struct {
	number   int
	operator string // which kind of change
	dir      string // of the package
	function string // with its receiver
	code     string // the changed code, on one line
	nth      int    // its number (from 1) among mutations that are otherwise the same
	place    string // file:line
}

// name identifies a mutation. It stays the same when the function moves to another line or file.
func (m mutation) name() string {
	name := fmt.Sprintf("%s %s: %s: %s", m.dir, m.function, m.operator, m.code)
	if m.nth > 1 {
		name += fmt.Sprintf(" #%d", m.nth)
	}
	return name
}

// A rewriter puts calls of package mutant into the files of a package. As long as no mutant is
// active, the changed files behave like the original files.
type rewriter struct {
	files   *token.FileSet
	info    *types.Info
	dir     string
	path    string          // the package's import path
	broken  map[string]bool // lines in which no mutants are made
	mutants []mutation
	names   map[string]int // how often each name was given

	file     *ast.File
	source   []byte
	function string
	inserts  []insert
	skipped  map[ast.Node]bool // without mutants of their own
}

// An insert is text to insert before the byte at an offset.
type insert struct {
	offset int
	length int  // of the node that it belongs to
	end    bool // insert at the end of that node
	number int  // of the mutant
	text   string
}

// rewrite returns a file with all its mutants.
func (r *rewriter) rewrite(file *ast.File, source []byte) []byte {
	r.file, r.source, r.inserts, r.skipped = file, source, nil, make(map[ast.Node]bool)
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			r.function = nameOf(f)
			ast.PreorderStack(f.Body, []ast.Node{f}, r.visit)
		}
	}
	return r.apply()
}

// nameOf returns a function's name, with its receiver's type as in a method expression.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver := types.ExprString(f.Recv.List[0].Type)
	if strings.HasPrefix(receiver, "*") {
		receiver = "(" + receiver + ")"
	}
	return receiver + "." + f.Name.Name
}

// visit adds the mutants of one node.
func (r *rewriter) visit(n ast.Node, stack []ast.Node) bool {
	if r.skipped[n] {
		return false
	}
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok != token.CONST
	case *ast.ArrayType: // its length is a constant
		return false
	case *ast.CompositeLit:
		r.keys(n)

	// Branches, always taken and never taken.
	case *ast.IfStmt:
		r.condition(n.Cond, true, true)
	case *ast.ForStmt:
		if n.Cond != nil { // an endless loop would only waste time
			r.condition(n.Cond, false, true)
		}
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, c := range n.Body.List {
				for _, condition := range c.(*ast.CaseClause).List {
					r.condition(condition, true, true)
				}
			}
		}
	case *ast.ReturnStmt:
		for _, result := range n.Results {
			if _, name := result.(*ast.Ident); !name && r.basic(result)&types.IsBoolean != 0 {
				r.condition(result, true, true)
			}
		}

	// Statements, left out.
	case *ast.BlockStmt:
		r.statements(n.List)
	case *ast.CaseClause:
		r.statements(n.Body)
	case *ast.CommClause:
		r.statements(n.Body)

	// Comparisons and integers, off by one.
	case *ast.BinaryExpr:
		r.order(n)
	case *ast.BasicLit:
		r.constant(n, stack[len(stack)-1])
	case *ast.Ident:
		if c, ok := r.info.Uses[n].(*types.Const); ok && c.Pkg() != nil { // iota has no package
			r.constant(n, stack[len(stack)-1])
		}
	case *ast.SelectorExpr: // a constant of another package is changed there
		r.skipped[n.Sel] = true

	// Requests, left out or made at any version.
	case *ast.CallExpr:
		r.call(n)
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Version" && !isAny(n.Value) {
			r.wrap("any version", n.Value, "mutantVersion(%d, ", ")")
		}
	case *ast.UnaryExpr:
		if c, ok := n.X.(*ast.CompositeLit); ok && n.Op == token.AND && selected(c.Type) == "CheckVersionRequest" {
			r.wrap("no check", n, "mutantCheck(%d, ", ")")
		}
	}

	return true
}

// keys leaves the keys of an array alone, because they are constants.
func (r *rewriter) keys(c *ast.CompositeLit) {
	switch r.info.Types[c].Type.Underlying().(type) {
	case *types.Array, *types.Slice:
		for _, element := range c.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok {
				r.skipped[pair.Key] = true
			}
		}
	}
}

// condition adds mutants that always and never take a branch. For a && b, one false part is enough.
func (r *rewriter) condition(e ast.Expr, always, never bool) {
	switch x := e.(type) {
	case *ast.ParenExpr:
		r.condition(x.X, always, never)
		return
	case *ast.BinaryExpr:
		if x.Op == token.LAND || x.Op == token.LOR {
			r.condition(x.X, always && x.Op == token.LAND, never && x.Op == token.LOR)
			r.condition(x.Y, always, never)
			return
		}
	}

	if r.info.Types[e].Value != nil {
		return
	}
	if always {
		r.wrap("true", e, "mutantTrue(%d, ", ")")
	}

	if never {
		r.wrap("false", e, "mutantFalse(%d, ", ")")
	}
}

// statements adds mutants that leave a statement out.
func (r *rewriter) statements(list []ast.Stmt) {
	for _, n := range list {
		drop := false
		switch n := n.(type) {
		case *ast.ExprStmt:
			call, ok := n.X.(*ast.CallExpr)
			drop = ok && dispensable(call)
		case *ast.DeferStmt:
			// A deferred call's arguments are evaluated at once, so only the call itself can be
			// dropped.
			drop = dispensable(n.Call)
		case *ast.AssignStmt:
			drop = n.Tok != token.DEFINE && !isNothing(n)
		case *ast.IncDecStmt, *ast.GoStmt, *ast.SendStmt:
			drop = true
		}
		if drop {
			r.wrap("drop", n, "if !mutantOn(%d) { ", " }")
		}
	}
}

// constant adds mutants of an integer. Their names include the code around it.
func (r *rewriter) constant(e ast.Expr, around ast.Node) {
	if r.basic(e)&types.IsInteger == 0 {
		return
	}
	// The mutant names the integer's type, so the file must import the type's package.
	visible := true
	name := types.TypeString(types.Default(r.info.Types[e].Type), func(p *types.Package) string {
		name, ok := r.imported(p)
		visible = visible && ok
		return name
	})
	if !visible {
		return
	}

	plus, minus := true, true
	if b, ok := around.(*ast.BinaryExpr); ok { // a comparison is already off by one, in one direction
		switch b.Op {
		case token.LSS, token.GEQ:
			plus, minus = b.X == e, b.Y == e
		case token.GTR, token.LEQ:
			plus, minus = b.Y == e, b.X == e
		}
	}

	code := r.text(e) + " in " + r.text(around)
	if plus {
		r.wrapNamed("plus one", code, e, "mutantAdd["+name+"](%d, 1, ", ")")
	}
	if minus {
		r.wrapNamed("minus one", code, e, "mutantAdd["+name+"](%d, -1, ", ")")
	}
}

// imported returns the name of a package in the file.
func (r *rewriter) imported(p *types.Package) (name string, ok bool) {
	if p.Path() == r.path {
		return "", true
	}
	for _, i := range r.file.Imports {
		if path, _ := strconv.Unquote(i.Path.Value); path == p.Path() {
			if i.Name != nil {
				return i.Name.Name, i.Name.Name != "_" && i.Name.Name != "."
			}
			return p.Name(), true
		}
	}

	return "", false
}

// basic tells what kind of basic type an expression has, or 0.
func (r *rewriter) basic(e ast.Expr) types.BasicInfo {
	if t := r.info.Types[e].Type; t != nil {
		if b, ok := t.Underlying().(*types.Basic); ok {
			return b.Info()
		}
	}
	return 0
}

// order adds mutants that are off by one. Times have none, because a nanosecond decides nothing.
func (r *rewriter) order(b *ast.BinaryExpr) {
	x, y := r.text(b.X), r.text(b.Y)
	t := r.info.Types[b.X].Type
	if strings.Contains(x+y, "\n") || t != nil && t.String() == "time.Duration" { // mutants add no lines
		return
	}
	switch b.Op {
	case token.LSS, token.GTR:
		r.wrap("off by one", b, "(", " || mutantOn(%d) && ("+x+") == ("+y+"))")
	case token.LEQ, token.GEQ:
		r.wrap("off by one", b, "(", " && !(mutantOn(%d) && ("+x+") == ("+y+")))")
	}
}

// call adds mutants that leave a request out, or make it at any version.
func (r *rewriter) call(c *ast.CallExpr) {
	name := selected(c.Fun)
	if f, ok := c.Fun.(*ast.SelectorExpr); ok && r.text(f.X) == "slices" {
		return // slices.Delete takes no version
	}
	switch {
	case name == "Sync" && len(c.Args) == 2:
		r.wrap("no sync", c, "mutantSkip(%d, func() error { return ", " })")
	case name == "Check" && len(c.Args) == 0:
		r.wrap("no check", c, "mutantCheck(%d, ", ")")
	case name == "Delete" && len(c.Args) == 3, name == "Set" && len(c.Args) == 4:
		if last := c.Args[len(c.Args)-1]; !isAny(last) {
			r.wrap("any version", last, "mutantVersion(%d, ", ")")
		}
	}

	if f, ok := c.Fun.(*ast.Ident); ok && f.Name == "make" && len(c.Args) == 3 {
		r.skipped[c.Args[2]] = true // no test can notice a capacity
	}
}

// maxCode limits how many bytes of code a name has.
const maxCode = 80

// wrap adds a mutant that puts a node between two texts. One of the texts has a place for the
// mutant's number.
func (r *rewriter) wrap(operator string, n ast.Node, before, after string) {
	r.wrapNamed(operator, r.text(n), n, before, after)
}

// wrapNamed is wrap with other code for the mutant's name.
func (r *rewriter) wrapNamed(operator, code string, n ast.Node, before, after string) {
	begin, end := r.files.Position(n.Pos()), r.files.Position(n.End())
	code = strings.Join(strings.Fields(code), " ")
	m := mutation{
		number: len(r.mutants), operator: operator, dir: r.dir, function: r.function,
		code: strings.ToValidUTF8(code[:min(maxCode, len(code))], ""), nth: 1, place: place(begin),
	}

	if r.names == nil {
		r.names = make(map[string]int)
	}
	name := m.name()
	r.names[name]++
	m.nth = r.names[name]
	// A mutant in a broken line also uses up its name. Otherwise later mutants would change their
	// names.
	for line := begin.Line; line <= end.Line; line++ {
		if r.broken[place(token.Position{Filename: begin.Filename, Line: line})] {
			return
		}
	}

	r.mutants = append(r.mutants, m)
	numbered := func(text string) string { return strings.Replace(text, "%d", fmt.Sprint(m.number), 1) }
	length := end.Offset - begin.Offset
	r.inserts = append(r.inserts,
		insert{begin.Offset, length, false, m.number, numbered(before)},
		insert{end.Offset, length, true, m.number, numbered(after)})
}

// apply returns the source with all inserts. An outer node's inserts are around an inner node's
// inserts.
func (r *rewriter) apply() []byte {
	// At one offset, texts that end a node come before texts that begin the next node.
	slices.SortStableFunc(r.inserts, func(a, b insert) int {
		switch {
		case a.offset != b.offset:
			return cmp.Compare(a.offset, b.offset)
		case a.end != b.end && a.end:
			return -1
		case a.end != b.end:
			return 1
		case a.end: // of two mutants of one node, the first is outside
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

func (r *rewriter) text(n ast.Node) string {
	return string(r.source[r.files.Position(n.Pos()).Offset:r.files.Position(n.End()).Offset])
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

// isNothing reports whether a statement is only for the compiler (_ = x).
func isNothing(a *ast.AssignStmt) bool {
	name, ok := a.Lhs[0].(*ast.Ident)
	_, calls := a.Rhs[0].(*ast.CallExpr)
	return ok && name.Name == "_" && len(a.Lhs) == 1 && !calls
}

// dispensable reports whether the program compiles without this call, and doesn't merely hang or
// race. (A hang or a race says nothing about the tests.)
func dispensable(c *ast.CallExpr) bool {
	switch name := selected(c.Fun); name {
	case "Lock", "Unlock", "RLock", "RUnlock", "Add", "Wait", "Stop", "Done", "Debug", "Info", "Warn", "Error", "Log", "Report":
		return false
	}
	id, ok := c.Fun.(*ast.Ident)
	return !ok || id.Name != "panic"
}
