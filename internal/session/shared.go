package session

import (
	"runtime"
	"sync"
	"weak"
)

// sharedValues are the values of [Shared].
type sharedValues struct {
	mu     sync.Mutex  // held while a value is looked up or made
	values map[any]any // from sharedKey to weak.Pointer
}

// A sharedKey is the key of a value of [Shared]. Values of different types have different keys.
type sharedKey[T any] struct {
	view weak.Pointer[View]
	key  any
}

// Shared returns the value of type T for a session, a view and a key. If there is no value, it
// calls create and returns the new value. It is documented in package protocol/recipe.
func Shared[T any](s *Session, v *View, key any, create func() *T) *T {
	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	k := sharedKey[T]{weak.Make(v), key}
	if entry, ok := s.shared.values[k].(weak.Pointer[T]); ok {
		// A value that was collected is made again even if its clean-up has not run yet.
		if v := entry.Value(); v != nil {
			return v
		}
	}

	value := create()
	entry := weak.Make(value)
	if s.shared.values == nil {
		s.shared.values = make(map[any]any)
	}

	s.shared.values[k] = entry
	runtime.AddCleanup(value, sharedEntry[T].remove, sharedEntry[T]{weak.Make(s), k, entry})
	return value
}

// A sharedEntry removes the entry of a collected value. It must not keep the session: a session
// whose watches refer to the value would keep itself and the value for ever.
type sharedEntry[T any] struct {
	session weak.Pointer[Session]
	key     sharedKey[T]
	value   weak.Pointer[T]
}

func (e sharedEntry[T]) remove() {
	s := e.session.Value()
	if s == nil {
		return
	}

	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	if s.shared.values[e.key] == any(e.value) { // otherwise a newer value has taken its place
		delete(s.shared.values, e.key)
	}
}
