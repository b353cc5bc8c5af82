package transcript

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/scanner"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// parseStep reads a step as its String writes it. It panics if text isn't a step, because only our
// own tests have steps.
func parseStep(text string) (s Step) {
	who, what, _ := strings.Cut(text, ": ")
	if _, err := fmt.Sscanf(who, "session %d", &s.session); err != nil {
		panic(fmt.Sprintf("%q: %v", text, err))
	}
	for does, words := range actions {
		if what == words {
			s.does = does
			return s
		}
	}

	p := new(parser)
	p.Init(strings.NewReader(what))
	p.Mode = scanner.ScanIdents | scanner.ScanInts | scanner.ScanStrings
	p.next()
	if strings.HasPrefix(what, "auth ") {
		p.take(scanner.Ident)
		s.does, s.scheme, s.secret = doAuth, p.string(), p.string()
		return s
	}
	s.requests = p.requests(scanner.EOF)
	return s
}

// A parser reads requests.
type parser struct {
	scanner.Scanner
	token rune // the next one
}

func (p *parser) next() { p.token = p.Scan() }

// take returns the text of the next token, which must be of this kind.
func (p *parser) take(kind rune) string {
	if p.token != kind {
		panic(fmt.Sprintf("column %d: %s and not %s", p.Position.Column, scanner.TokenString(p.token), scanner.TokenString(kind)))
	}
	text := p.TokenText()
	p.next()
	return text
}

// skip skips the next token if it is of this kind.
func (p *parser) skip(kind rune) bool {
	found := p.token == kind
	if found {
		p.next()
	}
	return found
}

func (p *parser) string() string {
	s, err := strconv.Unquote(p.take(scanner.String))
	if err != nil {
		panic(err)
	}
	return s
}

func (p *parser) int() int64 {
	sign := ""
	if p.skip('-') {
		sign = "-"
	}
	n, err := strconv.ParseInt(sign+p.take(scanner.Int), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// list calls item for each item in parentheses.
func (p *parser) list(item func()) {
	for p.take('('); !p.skip(')'); {
		item()
	}
}

func (p *parser) requests(end rune) []request {
	list := []request{}
	for !p.skip(end) {
		list = append(list, p.request())
		if p.token != end {
			p.take(';')
		}
	}
	return list
}

func (p *parser) request() request {
	r := request{op: opNamed(p.take(scanner.Ident))}
	for {
		switch p.token {
		case scanner.String:
			r.path = p.string()
		case '[':
			p.next()
			r.parts = p.requests(']')
		case scanner.Ident:
			p.field(&r, p.take(scanner.Ident))
		default:
			return r
		}
	}
}

func (p *parser) field(r *request, name string) {
	p.skip('=')
	switch name {
	case "watch":
		r.watch = true
	case "data":
		r.data = []byte(p.string())
	case "flags":
		r.flags = int32(p.int())
	case "ttl":
		r.ttl = p.int()
	case "version":
		r.version = int32(p.int())
	case "mode":
		r.mode = int32(p.int())
	case "since":
		r.since = int(p.int())
	case "acl":
		r.acl = []entry{}
		p.list(func() { r.acl = append(r.acl, entry{int32(p.int()), p.string(), p.string()}) })
	default:
		list := &r.watches[slices.Index(watchLists, name)] // or it panics
		p.list(func() { *list = append(*list, p.string()) })
	}
}

// opNamed returns the operation of this name.
func opNamed(name string) zkwire.Op {
	for op := zkwire.Op(-20); op < 200; op++ {
		if op.String() == name {
			return op
		}
	}
	panic("no operation is named " + name)
}
