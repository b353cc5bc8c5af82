package main

// A store is what the lock protects. It keeps the same writes in three ways, by what it compares
// before it takes one: nothing, values or tokens. It never asks the lock.
type store struct {
	claimed string // the value of the client that was the last to claim the store
	newest  int64  // the greatest token of a write
}

// taken says which ways of keeping a store take a write.
type taken struct{ nothing, values, tokens, check bool }

// claim announces the writes of a client, so that writes of those that claimed it before are
// refused. This is what a store can do with a value that differs from all others, but has no order.
func (s *store) claim(value string) { s.claimed = value }

func (s *store) write(value string, token int64) taken {
	t := taken{nothing: true, values: value == s.claimed}
	if token > 0 && token >= s.newest {
		t.tokens, s.newest = true, token
	}
	return t
}
