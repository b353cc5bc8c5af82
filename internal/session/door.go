package session

// A Door leads from a user's value to a value of this package, which no page for users shows. A
// public type embeds an alias of Door with an unexported name. Only packages of this module can
// call [Open].
type Door[T any] struct{ in *T }

// Behind returns the door to in.
func Behind[T any](in *T) Door[T] { return Door[T]{in} }

func (d Door[T]) open() *T { return d.in }

// Open returns the value behind the door of a user's value.
func Open[T any](value interface{ open() *T }) *T { return value.open() }
