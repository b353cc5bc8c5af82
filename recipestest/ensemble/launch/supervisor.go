package launch

import (
	"bufio"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed supervisor.sh
var supervisorScript string

// Timeout bounds operations that take a second or two on an idle machine (the start of a server, or
// an election). Three members that share a few percent of a core need more than a minute to start.
const Timeout = 3 * time.Minute

// A Supervisor runs one server by means of supervisor.sh, which ends with this process. It has no
// goroutine, so leak checks don't see a shared server.
type Supervisor struct {
	commands io.Writer
	answers  *bufio.Reader
	deadline func(time.Time) error               // sets the deadline for reading answers
	log      func(w io.Writer, whole bool) error // writes the server's log, or its end
	end      func() error                        // kills the server and waits until it is gone

	mu sync.Mutex // held during a command
}

// Command makes the script execute one of its commands, and waits until it has.
func (s *Supervisor) Command(command string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.deadline(time.Now().Add(Timeout)); err != nil {
		return fmt.Errorf("%s server: %w", command, err)
	}

	if _, err := fmt.Fprintln(s.commands, command); err != nil {
		return fmt.Errorf("%s server: %w\n%s", command, err, s.Tail())
	}

	answer, err := s.answers.ReadString('\n')
	if err != nil {
		return fmt.Errorf("%s server: %w\n%s", command, err, s.Tail())
	}
	// The script answers with the command that it has executed.
	if got := strings.TrimSpace(answer); got != command {
		return fmt.Errorf("%s server: answered %q", command, got)
	}

	return nil
}

// Tail returns the end of the server's log.
func (s *Supervisor) Tail() string {
	var tail strings.Builder
	if err := s.log(&tail, false); err != nil {
		return fmt.Sprintf("no log: %v", err)
	}
	return tail.String()
}

// CopyLog writes the whole log of the server to w.
func (s *Supervisor) CopyLog(w io.Writer) error { return s.log(w, true) }

// End kills the server, removes its data, and waits until both are done.
func (s *Supervisor) End() error { return s.end() }

// Config returns the lines of zoo.cfg that all servers of tests have. syncLimit is a number of
// ticks.
func Config(bind string, port, syncLimit int) []string {
	return []string{
		"tickTime=500", // grants sessions of 1 s to 10 s
		"initLimit=20",
		fmt.Sprintf("syncLimit=%d", syncLimit),
		fmt.Sprintf("clientPort=%d", port),
		"clientPortAddress=" + bind,
		"maxClientCnxns=0",
		"4lw.commands.whitelist=*",
		"admin.enableServer=false",
		"extendedTypesEnabled=true",
		// By default each log takes 64 MB at once, and the data can be in memory.
		"preAllocSize=1024",
		// By default, members that have lost each other retry only once a minute.
		"fastleader.maxNotificationInterval=1000",
	}
}

// A Spec describes one server, but not where it runs.
type Spec struct {
	ID       int
	Config   []string          // lines of zoo.cfg
	JVMFlags []string          // options of the java command
	Files    map[string][]byte // put into the server's directory
	Ports    []int             // every port it listens on

	// DiskSize is how many bytes the server's directory can take, and any other file that its
	// processes write in memory. With 0 the size doesn't matter.
	DiskSize int64

	// Traced allows the supervisor to trace the server's process.
	Traced bool
}

// shellArgs returns the arguments with which sh runs the supervisor of the server.
func (s Spec) shellArgs() []string {
	args := []string{
		"-c", supervisorScript, "supervisor",
		strings.Join(s.Config, "\n"), fmt.Sprint(s.ID), strings.Join(s.JVMFlags, " "),
	}
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		args = append(args, name, base64.StdEncoding.EncodeToString(s.Files[name]))
	}
	return args
}
