// Package must turns errors into panics, and back. It is for code whose many steps would each
// return an error that only the outermost function looks at.
package must

import "fmt"

// The functions of this package panic with a failure.
type failure struct{ error }

// Succeed panics if err isn't nil.
func Succeed(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Get returns v, or panics if err isn't nil.
func Get[T any](v T, err error) T {
	Succeed(err)
	return v
}

// Fail panics with an error of this text, as fmt.Errorf makes it.
func Fail(format string, args ...any) { Succeed(fmt.Errorf(format, args...)) }

// Try calls f and returns the error with which a function of this package has ended it, or nil.
// Other panics go on. It is for the goroutine that f runs in.
func Try(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	f()
	return nil
}
