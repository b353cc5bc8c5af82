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

// sharedKey is the key of a value of [Shared]. Its own type keeps values of different types apart.
type sharedKey[T any] struct {
	view weak.Pointer[View]
	key  any
}

// sharedEntry is what the clean-up of a value needs to remove its entry. It does not keep the
// session: a session that refers to the value, through a watch perhaps, would keep both for ever.
type sharedEntry[T any] struct {
	session weak.Pointer[Session]
	key     sharedKey[T]
	value   weak.Pointer[T]
}

// Shared returns the value of type T that belongs to a session, a view and a key. If there is none,
// it calls create and returns the new value. Package protocol/recipe says more.
func Shared[T any](s *Session, v *View, key any, create func() *T) *T {
	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	k := sharedKey[T]{weak.Make(v), key}
	if entry, ok := s.shared.values[k].(weak.Pointer[T]); ok {
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

// remove removes the entry of a value that is gone, unless another value has taken its place.
func (e sharedEntry[T]) remove() {
	s := e.session.Value()
	if s == nil {
		return
	}
	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	if s.shared.values[e.key] == any(e.value) {
		delete(s.shared.values, e.key)
	}
}
