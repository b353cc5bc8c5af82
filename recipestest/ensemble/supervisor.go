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

// startTimeout bounds operations that take a second or two on an idle machine, such as the start of
// a server or an election. Three members that share a few percent of a core need more than a minute
// to start.
const startTimeout = 3 * time.Minute

// A supervisor runs one server by means of supervisor.sh, which ends with this process. It needs no
// goroutine, so leak checks do not see a shared server.
type supervisor struct {
	commands io.Writer
	answers  *bufio.Reader
	deadline func(time.Time) error // sets the deadline for reading answers
	log      func() string         // returns the end of the server's log
	end      func() error          // kills the server and waits until it is gone
}

// command makes the script execute one of its commands, and waits until it has.
func (s *supervisor) command(verb string) error {
	if err := s.deadline(time.Now().Add(startTimeout)); err != nil {
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

// A serverSpec describes one server, except for where it runs.
type serverSpec struct {
	id       int
	config   []string          // lines of zoo.cfg
	jvmFlags []string          // options of the java command
	files    map[string][]byte // put into the server's directory
	ports    []int             // every port it listens on
}

// shellArgs returns the arguments with which sh runs the supervisor of the server.
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
