package interop

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

//go:embed kazoo_peer.py
var kazooProgram string

// findPython finds a Python that has kazoo. (The first Python on PATH may not have the system's
// packages.)
var findPython = sync.OnceValues(func() (python string, err error) {
	const probe = "import inspect, kazoo.recipe.lock as l; " +
		"assert 'extra_lock_patterns' in inspect.signature(l.Lock).parameters, 'kazoo is older than 2.7.1'"
	var errs []error
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		out, err := exec.Command(python, "-c", probe).CombinedOutput()
		if err == nil {
			return python, nil
		}
		// The last line of a traceback names the exception.
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		errs = append(errs, fmt.Errorf("%s: %w: %s", python, err, lines[len(lines)-1]))
	}
	return "", errors.Join(errs...)
})

// StartKazoo starts kazoo and blocks until it has a session. If no Python has kazoo, the error
// wraps [ErrNotInstalled]. If ctx ends first, the error wraps ctx's cause. The caller must call
// [Peer.Close].
func StartKazoo(ctx context.Context, o Options) (*Peer, error) {
	python, err := findPython()
	if err != nil {
		return nil, fmt.Errorf("%w: kazoo (Debian's python3-kazoo): %w", ErrNotInstalled, err)
	}
	return start(ctx, "kazoo", o, python, "-c", kazooProgram)
}

// Kazoo runs kazoo against the servers until tb ends. If no Python has kazoo, it skips tb (or fails
// it, if ZKRECIPES_REQUIRE_REAL is 1). The locks of the command lock count contenders named
// …-lock-<sequence>, ours among them.
func Kazoo(tb testing.TB, connectString string) *Peer {
	tb.Helper()
	return run(tb, connectString, StartKazoo)
}
