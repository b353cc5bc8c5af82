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

// A Process says where a contender runs. It is the data of a contender's node unless the user gives
// other data (docs/design.md describes the form):
//
//	{"zkrecipes":1,"host":"web-3","pid":4711,"program":"reports"}
//
// It proves nothing: a client can write anything.
type Process struct {
	Host    string
	PID     int
	Program string
}

// ParseProcess reads the data of a contender's node. It reports whether the data has the form of a
// [Process] (in any version). The strings can have any characters, so quote them before printing.
func ParseProcess(data []byte) (p Process, ok bool) {
	parsed, ok := layout.ParseProcess(data)
	return Process(parsed), ok
}

// Data returns the data that [ParseProcess] reads. Question marks replace characters that are not
// printable.
func (p Process) Data() []byte { return layout.Process(p).Data() }

// String returns the process as text for logs, as in "reports[4711] on web-3".
func (p Process) String() string { return layout.Process(p).String() }

// The default data cuts longer names because every create sends them.
const (
	maxHost    = 64
	maxProgram = 32
)

// thisProcess returns the data for this process.
var thisProcess = sync.OnceValue(func() []byte {
	host, _ := os.Hostname() // without one, the rest still helps
	program := ""
	if len(os.Args) > 0 {
		program = filepath.Base(os.Args[0])
	}
	return Process{shorten(host, maxHost), os.Getpid(), shorten(program, maxProgram)}.Data()
})

func shorten(s string, n int) string { return strings.ToValidUTF8(s[:min(n, len(s))], "") }

// maxOwnerData is the most data that WithOwnerData takes.
const maxOwnerData = 1024

// WithOwnerData sets the data of contenders' nodes for which the user gives no data (such as the
// nodes of a lock without lock.WithData). The default is the [Process]. With nil the nodes have no
// data. Data of more than 1,024 bytes is an error. Don't change it afterwards. Elections and groups
// ignore it.
func WithOwnerData(data []byte) Option {
	return option(func(_ *Client, v *session.View) error {
		if len(data) > maxOwnerData {
			return fmt.Errorf("%w: owner data of %d bytes, at most %d", ErrTooLarge, len(data), maxOwnerData)
		}
		v.OwnerData = data
		return nil
	})
}
