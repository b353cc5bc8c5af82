package protocol

import (
	"runtime"
	"weak"
)

// sharedKey is the key of a value of [Shared]. Its own type keeps values of different types apart.
type sharedKey[T any] struct {
	view weak.Pointer[Client]
	key  any
}

// sharedEntry is what the clean-up of a value needs to remove its entry. It does not keep the
// session: a session that refers to the value, through a watch perhaps, would keep both for ever.
type sharedEntry[T any] struct {
	session weak.Pointer[session]
	key     sharedKey[T]
	value   weak.Pointer[T]
}

// Shared returns the value of type T that belongs to key, under s and the view that s is bound to.
// If there is none, Shared calls create and returns the new value. So recipes of one view that
// are made for the same path share state as long as a session lasts. Another session or view has
// another value.
//
// The session does not keep the value alive. Once no caller refers to the value any more, it is
// collected, and the next call creates another one. The end of the session does not change it.
//
// create must return a new value. It is called once for concurrent callers, and the others wait for
// it. So create must neither block nor call Shared. If create panics, so does Shared, and the next
// call tries again. The key must not refer to the value. Shared panics if the key cannot be
// compared. Shared does no I/O. It is safe for concurrent use.
func Shared[T any](s *Session, key any, create func() *T) *T {
	s.sharing.Lock()
	defer s.sharing.Unlock()
	k := sharedKey[T]{weak.Make(s.client), key}
	if entry, ok := s.shared[k].(weak.Pointer[T]); ok {
		if v := entry.Value(); v != nil {
			return v
		}
	}

	v := create()
	entry := weak.Make(v)
	s.shared[k] = entry
	runtime.AddCleanup(v, sharedEntry[T].remove, sharedEntry[T]{weak.Make(s.session), k, entry})
	return v
}

// remove removes the entry of a value that is gone, unless another value has taken its place.
func (e sharedEntry[T]) remove() {
	s := e.session.Value()
	if s == nil {
		return
	}
	s.sharing.Lock()
	defer s.sharing.Unlock()
	if s.shared[e.key] == any(e.value) {
		delete(s.shared, e.key)
	}
}
