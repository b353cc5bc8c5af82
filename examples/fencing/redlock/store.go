package main

// A store is protected by the lock. It keeps the same writes in three ways, which differ in what
// the store compares before it accepts a write: nothing, values or tokens. It never asks the lock.
type store struct {
	claimed string // the value of the client that last claimed the store
	newest  int64  // the greatest token of any write
}

// taken says which ways of keeping a store accept a write.
type taken struct{ nothing, values, tokens, check bool }

// claim announces a client's writes, so that writes of clients that claimed the store before are
// refused. That's all a store can do with values that are unique but have no order.
func (s *store) claim(value string) { s.claimed = value }

func (s *store) write(value string, token int64) taken {
	t := taken{nothing: true, values: value == s.claimed}
	if token > 0 && token >= s.newest {
		t.tokens, s.newest = true, token
	}
	return t
}
