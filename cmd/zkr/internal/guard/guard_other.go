//go:build !unix

package guard

// Main does nothing: there are no guards on this system.
func Main() {}
