// Package mutant has the functions that mutants call. Command internal/real/mutants adds this file
// to each package that it makes mutants of, and writes the calls into a copy of the code. All
// mutants of a package are built into one test binary, and the environment chooses the active
// mutant.
package mutant

import (
	"os"
	"reflect"
	"strconv"
	"sync/atomic"
)

var (
	mutantActive = func() int {
		n, err := strconv.Atoi(os.Getenv("ZKRECIPES_MUTANT"))
		if err != nil {
			return -1
		}
		return n
	}()

	// mutantFile gets a byte 1 at offset n when the code of mutant n is reached.
	mutantFile = func() *os.File {
		name := os.Getenv("ZKRECIPES_MUTANTS_REACHED")
		if name == "" {
			return nil
		}
		f, _ := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
		return f
	}()

	mutantSeen [1 << 16]atomic.Bool
)

// mutantOn reports whether mutant n is active.
func mutantOn(n int) bool {
	if mutantFile != nil && !mutantSeen[n].Swap(true) {
		mutantFile.WriteAt([]byte{1}, int64(n)) // a lost byte shows as code that no test reaches
	}
	return n == mutantActive
}

func mutantTrue[T ~bool](n int, condition T) T { return condition || T(mutantOn(n)) }

func mutantFalse[T ~bool](n int, condition T) T { return condition && !T(mutantOn(n)) }

// mutantAdd returns x, or x + by if mutant n is active.
func mutantAdd[T ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr](n, by int, x T) T {
	if mutantOn(n) {
		x += T(by)
	}
	return x
}

// mutantVersion returns version, or the version that fits any if mutant n is active.
func mutantVersion(n int, version int32) int32 {
	if mutantOn(n) {
		return -1
	}
	return version
}

// mutantCheck returns check, or a CheckVersionRequest that never fails if mutant n is active.
func mutantCheck[T any](n int, check *T) *T {
	if mutantOn(n) {
		any := *check
		reflect.ValueOf(&any).Elem().FieldByName("Path").SetString("/")
		reflect.ValueOf(&any).Elem().FieldByName("Version").SetInt(-1)
		return &any
	}
	return check
}

// mutantSkip calls f unless mutant n is active.
func mutantSkip(n int, f func() error) error {
	if mutantOn(n) {
		return nil
	}
	return f()
}
