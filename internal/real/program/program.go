// Package program lets a program start the servers of package ensemble, which needs a test, and
// keeps what processes print.
package program

import (
	"fmt"
	"slices"
	"testing"
)

// Run calls f with a stand-in for a test. It returns f's error, or the message with which the
// stand-in failed or was skipped. Functions that f registers with Cleanup run before Run returns.
//
// The packages that f uses look at flags of tests, so call [testing.Init] before flag.Parse.
func Run(name string, f func(tb testing.TB) error) (err error) {
	p := &program{name: name}
	defer func() {
		for _, clean := range slices.Backward(p.cleanups) {
			clean()
		}
	}()
	defer func() {
		switch failure := recover().(type) {
		case nil:
		case failed:
			err = failure
		default:
			panic(failure)
		}
	}()
	return f(p)
}

// A program has the methods of a test that package ensemble calls.
type program struct {
	testing.TB
	name     string
	cleanups []func()
}

type failed struct{ error }

func (p *program) Helper()                   {}
func (p *program) Name() string              { return p.name }
func (p *program) Cleanup(f func())          { p.cleanups = append(p.cleanups, f) }
func (p *program) Logf(string, ...any)       {}
func (p *program) Skipf(f string, a ...any)  { panic(failed{fmt.Errorf(f, a...)}) }
func (p *program) Fatalf(f string, a ...any) { panic(failed{fmt.Errorf(f, a...)}) }
