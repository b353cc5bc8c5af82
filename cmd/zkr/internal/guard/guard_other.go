//go:build !unix

package guard

import "errors"

// Main does nothing because this system has no guards.
func Main() {}

// Usable returns an error because a command can't be ended with all its descendants here.
func Usable() error {
	return errors.New("commands cannot be run on this system: zkr could not end them when the lock is lost")
}
