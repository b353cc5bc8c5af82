package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/guard"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/plain"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
)

// A program is a command whose file was found.
type program struct {
	path string
	args []string
}

// lookUp finds the program of a command line like a shell. From now on, new nodes say who runs it
// (the program's name only, never its arguments).
func (a *app) lookUp(argv []string) (program, error) {
	if err := guard.Usable(); err != nil {
		return program{}, &exitError{status: exitCannotRun, err: err}
	}

	path, err := exec.LookPath(argv[0])
	switch {
	case err == nil:
	case isAny(err, exec.ErrNotFound, os.ErrNotExist):
		return program{}, &exitError{status: exitNotFound, err: fmt.Errorf("cannot find the command %s: %w", argv[0], err)}
	default:
		return program{}, &exitError{status: exitCannotRun, err: fmt.Errorf("cannot run %s: %w", argv[0], err)}
	}

	a.own(filepath.Base(argv[0]))
	return program{path, argv}, nil
}

// own makes new nodes say which process has them.
func (a *app) own(name string) {
	host, _ := os.Hostname()
	a.owner = survey.Owner{Host: host, PID: os.Getpid(), Program: plain.Cut(name, 32), Label: a.label}
}

// addRunFlags adds the flags of commands that run another command.
func (a *app) addRunFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.label, "label", "", "what else ps shows of this process, at most 64 bytes; everybody may read it")
	cmd.Flags().BoolVar(&a.passAuth, "pass-auth", false, "let the command inherit $ZKR_AUTH")
	cmd.Flags().DurationVar(&a.grace, "grace", 0,
		"time between SIGTERM and SIGKILL when the command has to end (default a twelfth of the session timeout)")
}

// graceOf returns the grace for a session timeout. SIGTERM comes that long before trust ends, so a
// longer grace ends the command after shorter faults.
func (a *app) graceOf(timeout time.Duration) (time.Duration, error) {
	switch {
	case a.grace < 0:
		return 0, usagef("--grace %v: must not be negative", a.grace)
	case a.grace > timeout/6:
		return 0, usagef("--grace %v: is more than a sixth of the session timeout, which is %v: give --timeout %v or more, if the servers grant that",
			a.grace, timeout, 6*a.grace)
	case a.grace > 0:
		return a.grace, nil
	}
	return timeout / 12, nil
}

// environment returns the environment of a command under h. It leaves out credentials and the
// variables of an outer zkr.
func (a *app) environment(h held) []string {
	inherited := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains([]string{"ZKR_KEY", "ZKR_ATTEMPT", "ZKR_UI_TOKEN"}, name) || name == "ZKR_AUTH" && !a.passAuth
	})

	// Members of a group have no token.
	token := ""
	if h.token > 0 {
		token = strconv.FormatInt(h.token, 10)
	}
	return slices.Concat(inherited, []string{"ZKR_PATH=" + h.path, "ZKR_TOKEN=" + token, "ZKR_NODE=" + h.node}, h.env)
}
