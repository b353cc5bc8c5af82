package recipe

import "github.com/zkrecipes/zkrecipes/internal/session"

// Shared returns the value of type T for a key, under s and its view. If there is no value, Shared
// calls create and returns the new value. So recipes of one view at the same path share state for
// as long as a session lasts. Another session or view has another value.
//
// The session does not keep the value alive. Once no caller refers to the value any more, it is
// collected and the next call creates another value. The end of the session does not change it.
//
// create must return a new value. It is called once for concurrent callers and the others wait for
// it. So create must neither block nor call Shared. If create panics, so does Shared. The next call
// tries again. The key must not refer to the value. Shared panics if the key cannot be compared.
// Shared does no I/O. It is safe for concurrent use.
func Shared[T any](s *Session, key any, create func() *T) *T {
	return session.Shared(s.bound.Session, s.bound.View, key, create)
}
