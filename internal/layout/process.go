package layout

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
)

// A Process says where a contender runs. A contender's node has it as its data (unless the user has
// given other data), so that Contenders, zkr ps and zkCli can show it. The data is a line of JSON:
//
//	{"zkrecipes":1,"host":"web-3","pid":4711,"program":"reports"}
//
// The number after "zkrecipes" is the version of the format. Later versions may add members. No
// recipe reads the data, so a node with other data is still a contender. The data proves nothing,
// because a client can write anything.
type Process struct {
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Program string `json:"program"`
}

const processVersion = 1

// processData is the format of a Process.
type processData struct {
	Version int `json:"zkrecipes"`
	Process
}

// ParseProcess reads the data of a contender's node. It reports whether the data has the format
// that [Process] shows, in any version. The strings can have any characters: quote them before you
// print them.
func ParseProcess(data []byte) (p Process, ok bool) {
	var d processData
	if err := json.Unmarshal(data, &d); err != nil || d.Version < 1 {
		return p, false
	}
	return d.Process, true
}

// Data returns the data that [ParseProcess] reads. Question marks replace characters that aren't
// printable.
func (p Process) Data() []byte {
	p.Host, p.Program = printable(p.Host), printable(p.Program)

	// The encoder's lines are for people to read, so it mustn't turn a < into \u003c.
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	to.Encode(processData{processVersion, p}) // can't fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// String returns the process as text for logs ("reports[4711] on web-3").
func (p Process) String() string {
	return fmt.Sprintf("%s[%d] on %s", printable(p.Program), p.PID, printable(p.Host))
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// revoked is the member that asks a holder to give back its lock, with a comma before it.
const revoked = `,"revoked":true}`

// curatorRevoked is the data that Apache Curator's Revoker writes and its makeRevocable waits for.
const curatorRevoked = "__REVOKE__"

// Revoke returns data that asks a contender to give back its lock. data is what the contender's
// node has now: for a [Process], Revoke adds a member. A contender of Curator has an address or
// nothing, and Curator's own request replaces it. If data asks already, Revoke returns nil. ok is
// false if data has none of these forms.
func Revoke(data []byte, ours bool) (request []byte, ok bool) {
	_, err := netip.ParseAddr(string(data))
	switch {
	case IsRevoked(data):
		return nil, true
	case len(data) == 0 || !ours && err == nil:
		return []byte(curatorRevoked), true
	}

	// Other members must stay as they are, even members that this version doesn't have.
	body, isObject := bytes.CutSuffix(bytes.TrimSpace(data), []byte("}"))
	if _, ok := ParseProcess(data); !ok || !isObject {
		return nil, false
	}
	return append(bytes.Clone(body), revoked...), true
}

// IsRevoked reports whether data asks a contender to give back its lock.
func IsRevoked(data []byte) bool {
	var d struct {
		Revoked bool `json:"revoked"`
	}
	_, ok := ParseProcess(data)
	return string(data) == curatorRevoked || ok && json.Unmarshal(data, &d) == nil && d.Revoked
}
