package laws

import (
	"slices"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A code is an answer that a server may give to a request. For "gone" the test deletes the node
// just before, and for "there already" it creates it (a server that lies would tell us nothing).
type code struct {
	name string
	code zkwire.Code
	to   string // such requests
}

var codes = []code{
	{"no auth", zkwire.CodeNoAuth, "create createContainer delete setData getData getChildren exists"},
	{"gone", 0, "create createContainer delete setData getData getChildren check exists"},
	{"there already", 0, "create createContainer"},
	{"bad version", zkwire.CodeBadVersion, "delete setData check"},
	{"quota exceeded", zkwire.CodeQuotaExceeded, "create createContainer setData"},
	{"throttled", zkwire.CodeThrottled, "create createContainer delete setData getData getChildren exists sync check"},
}

func (c code) fits(request string) bool {
	op, _, _ := strings.Cut(request, " ")
	return slices.Contains(strings.Fields(c.to), op)
}

// Refused lets the server refuse each request of a call, and each operation of each transaction,
// once.
func Refused(t *testing.T, p *Player) {
	p.law(t, law{name: "refused", title: "What comes of a call one of whose requests is refused once.", cells: func(sc *scene) {
		for _, p := range sc.calm.requests() {
			for _, c := range codes {
				for part := range p.parts {
					if c.fits(p.parts[part]) && (part == 0 || c.name != "throttled") {
						sc.refuse(p, c, part)
					}
				}
			}
		}
	}})
}

// refuse adds the cell in which one operation of a request is refused.
func (sc *scene) refuse(p packet, c code, part int) {
	numbered := false // such a node is never there already
	sc.broken(c.name, p, setting{}, func(s *Stage, operations []string) {

		operation := operations[min(part, len(operations)-1)]
		numbered = strings.HasSuffix(operation, "-")
		switch {
		case c.name == "gone":
			s.gone.Store(true)
			s.vanish(operation)
		case c.name == "there already":
			s.gone.Store(!strings.HasPrefix(operation, "createContainer"))
			s.appear(operation)
		case len(operations) == 1 || c.name == "throttled":
			s.Link.Fail(recipestest.OpAny, "", int32(c.code), 1)
		default:
			s.Link.FailPart(part+1, int32(c.code))
		}
	}, func(s *Stage, v Verb, o outcome, base int, p packet) (at, text string) {
		if !p.request || !c.fits(p.parts[min(part, len(p.parts)-1)]) || c.name == "there already" && numbered {
			o.back()
			return "", "" // where goroutines race another packet has come
		}

		at, text = sc.judged(s, v, o, base, p)
		if c.name == "bad version" && o.err != nil && calm(o.err) == nil { // somebody else has been there
			text = strings.TrimPrefix(text, "! ")
		}

		if c.name != "throttled" && len(p.parts) > part && len(p.parts) > 1 {
			at = p.parts[part] + " in a transaction"
		}

		return at, text
	})
}
