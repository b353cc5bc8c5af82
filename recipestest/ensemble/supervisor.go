package ensemble

import (
	"bufio"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

//go:embed supervisor.sh
var supervisorScript string

// patience bounds what takes a second or two on an idle machine: the start of a
// server, an election.
const patience = time.Minute

// A supervisor runs one server by supervisor.sh, which ends with this process.
// It costs no goroutine, so that leak checks see nothing of a shared server.
type supervisor struct {
	commands io.Writer
	answers  *bufio.Reader
	deadline func(time.Time) error // of reading answers
	log      func() string         // the end of the server's log
	end      func() error          // kills the server and waits until it is gone
}

// command has the script execute one of its commands.
func (s *supervisor) command(verb string) error {
	if err := s.deadline(time.Now().Add(patience)); err != nil {
		return fmt.Errorf("%s server: %w", verb, err)
	}
	if _, err := fmt.Fprintln(s.commands, verb); err != nil {
		return fmt.Errorf("%s server: %w\n%s", verb, err, s.log())
	}
	answer, err := s.answers.ReadString('\n')
	if err != nil {
		return fmt.Errorf("%s server: %w\n%s", verb, err, s.log())
	}
	if got := strings.TrimSpace(answer); got != verb {
		return fmt.Errorf("%s server: answered %q", verb, got)
	}
	return nil
}

// A serverSpec says everything about one server but where it runs.
type serverSpec struct {
	id       int
	config   []string          // lines of zoo.cfg
	jvmFlags []string          //
	files    map[string][]byte // put into the server's directory
	ports    []int             // every port it listens on
}

// shellArgs are the arguments of sh that run the supervisor of such a server.
func (s serverSpec) shellArgs() []string {
	args := []string{
		"-c", supervisorScript, "supervisor",
		strings.Join(s.config, "\n"), fmt.Sprint(s.id), strings.Join(s.jvmFlags, " "),
	}
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		args = append(args, name, base64.StdEncoding.EncodeToString(s.files[name]))
	}
	return args
}
