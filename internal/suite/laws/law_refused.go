package laws

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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
// once, and all requests of its kind from then on.
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
			for _, c := range codes {
				if c.fits(p.parts[0]) && (c.name == "no auth" || c.name == "throttled") {
					sc.refuseOn(p, c)
				}
			}
		}
	}})
}

// refuseOn adds the cell in which all requests of a kind are refused until the call ends. The call
// may wait for as long, but must not ask more than a few times a second.
func (sc *scene) refuseOn(p packet, c code) {
	const most = 6 // a second: a session whose proofs are refused sends four
	var op recipestest.Op
	var began time.Time
	before := 0
	sc.broken(c.name+" from then on", p, setting{}, func(s *Stage, operations []string) {
		began, before, op = time.Now(), s.Link.Count(recipestest.OpAny), recipestest.OpMulti
		what, _, _ := strings.Cut(operations[0], " ")
		for i := range recipestest.OpWhoAmI {
			if len(operations) == 1 && i.String() == what {
				op = i
			}
		}
		s.Link.Fail(op, "", int32(c.code), storm)
	}, func(s *Stage, v Verb, o outcome, base int, p packet) (at, text string) {
		s.Link.Fail(op, "", 0, 0)
		requests, seconds := s.Link.Count(recipestest.OpAny)-before, time.Since(began).Seconds()
		s.Client.Close() // what was refused has stayed
		if float64(requests) > most*max(seconds, 10) {
			return p.String(), fmt.Sprintf("! %d requests in %.0f s", requests, seconds)
		}
		return "", ""
	})
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
