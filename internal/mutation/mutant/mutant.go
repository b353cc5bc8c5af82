// Package mutant is what generated mutants call. Command internal/mutation/generated writes the
// calls into a copy of the code. All mutants of a package are built into one test binary, and the
// environment chooses the one that is active.
package mutant

import (
	"os"
	"strconv"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
)

// The environment of a test binary that has mutants.
const (
	// Active is the number of the active mutant. No mutant is active without it.
	Active = "ZKRECIPES_MUTANT"

	// Reached is a file. The byte at offset n becomes 1 when the code of mutant n is reached.
	Reached = "ZKRECIPES_MUTANTS_REACHED"
)

var (
	active = func() int {
		n, err := strconv.Atoi(os.Getenv(Active))
		if err != nil {
			return -1
		}
		return n
	}()

	file = func() *os.File {
		name := os.Getenv(Reached)
		if name == "" {
			return nil
		}
		f, _ := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
		return f
	}()

	seen [1 << 16]atomic.Bool
)

// On reports whether mutant n is active.
func On(n int) bool {
	if file != nil && !seen[n].Swap(true) {
		file.WriteAt([]byte{1}, int64(n)) // a lost byte shows as code that no test reaches
	}
	return n == active
}

// False returns condition, or false if mutant n is active.
func False(n int, condition bool) bool { return condition && !On(n) }

// Version returns version, or the one that fits any if mutant n is active.
func Version(n int, version int32) int32 {
	if On(n) {
		return -1
	}
	return version
}

// Check returns check, or one that never fails if mutant n is active.
func Check(n int, check *zk.CheckVersionRequest) *zk.CheckVersionRequest {
	if On(n) {
		return &zk.CheckVersionRequest{Path: "/", Version: -1}
	}
	return check
}

// Skip calls f, unless mutant n is active.
func Skip(n int, f func() error) error {
	if On(n) {
		return nil
	}
	return f()
}
