package protocol

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/session"
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

// ParseProcess reads the data of a contender's node. It reports whether they have the form that
// [Process] shows, in any version. The strings may have any characters: quote them before printing.
func ParseProcess(data []byte) (p Process, ok bool) {
	parsed, ok := layout.ParseProcess(data)
	return Process(parsed), ok
}

// Data returns the data that [ParseProcess] reads. Characters that are not printable are replaced
// by question marks.
func (p Process) Data() []byte { return layout.Process(p).Data() }

// String returns the process in a form for logs, as in "reports[4711] on web-3".
func (p Process) String() string { return layout.Process(p).String() }

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
	return option(func(_ *Client, v *session.View) error {
		if len(data) > maxOwnerData {
			return fmt.Errorf("%w: owner data of %d bytes, at most %d", ErrTooLarge, len(data), maxOwnerData)
		}
		v.OwnerData = data
		return nil
	})
}
