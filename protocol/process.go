package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unicode"
)

// A Process says where a contender runs. A node of a contender has it as its data, unless the user
// has given data of its own, for Contenders, zkr ps and zkCli to show. The data is a line of JSON:
//
//	{"zkrecipes":1,"host":"web-3","pid":4711,"program":"reports"}
//
// The number after "zkrecipes" is the version of the form. Later versions may add members. No
// recipe reads the data: a node with any other is a contender all the same. It is no proof: a
// client writes what it likes.
type Process struct {
	Host    string
	PID     int
	Program string
}

const processVersion = 1

// The form of a Process.
type processData struct {
	Version int    `json:"zkrecipes"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Program string `json:"program"`
}

// ParseProcess reads the data of a contender's node. It reports whether they have the form that
// [Process] shows, in any version. The strings may have any characters: quote them before printing.
func ParseProcess(data []byte) (p Process, ok bool) {
	var d processData
	if err := json.Unmarshal(data, &d); err != nil || d.Version < 1 {
		return p, false
	}
	return Process{d.Host, d.PID, d.Program}, true
}

// Data returns the data that [ParseProcess] reads. Characters that are not printable are replaced
// by question marks.
func (p Process) Data() []byte {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	to.Encode(processData{processVersion, printable(p.Host), p.PID, printable(p.Program)}) // cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// String returns the process in a form for logs, as in "reports[4711] on web-3".
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

// The default keeps names that are longer than these out, as every create has them.
const (
	maxHost    = 64
	maxProgram = 32
)

// thisProcess is the data for this process.
var thisProcess = sync.OnceValue(func() []byte {
	host, _ := os.Hostname() // without one, the rest still helps
	program := ""
	if len(os.Args) > 0 {
		program = filepath.Base(os.Args[0])
	}
	return Process{shorten(host, maxHost), os.Getpid(), shorten(program, maxProgram)}.Data()
})

func shorten(s string, n int) string { return strings.ToValidUTF8(s[:min(n, len(s))], "") }

// maxOwnerData is the most that WithOwnerData takes.
const maxOwnerData = 1024

// WithOwnerData is the data of contenders' nodes for which the user gives none, such as those of a
// lock without lock.WithData. The default is the [Process], of about a hundred bytes. With nil, the
// nodes have no data, and show nothing of the host. At most 1,024 bytes are taken. The caller must
// not change the slice afterwards.
//
// Elections and groups are not concerned: the value of a candidate and the data of a member are
// what the user gives, even if that is nothing.
func WithOwnerData(data []byte) Option {
	return option(func(c *Client) error {
		if len(data) > maxOwnerData {
			return fmt.Errorf("%w: owner data of %d bytes, at most %d", ErrTooLarge, len(data), maxOwnerData)
		}
		c.ownerData = data
		return nil
	})
}

// NodeData returns the data for a contender's node: given, or the view's owner data if given is
// nil. It is for recipes whose nodes are not created by package line.
func (s *Session) NodeData(given []byte) []byte {
	if given == nil {
		return s.client.ownerData
	}
	return given
}
