package queue

import (
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// batchBytes is what a transaction has at most that serves several calls. A call that needs more has one
// of its own.
const batchBytes = 128 << 10

// creations are what appends entries below the absolute path dir.
func (q *Queue) creations(dir string, items [][]byte) (ops []any) {
	for _, data := range items {
		ops = append(ops, &zk.CreateRequest{
			Path: dir + "/" + prefix, Data: data, Acl: q.recipe.ACL(), Flags: zk.FlagSequence,
		})
	}
	return ops
}

// A space is how many bytes a transaction may have that serves several calls. A server with a small
// jute.maxbuffer does not answer what is too large for it, but cuts the connection: then the next
// attempt is half as large. As the connection may have died of something else, that is tried again
// after a while.
type space struct {
	bytes int
	cut   time.Time
}

// again is how long the space stays small.
const again = time.Minute

func (s *space) size() int {
	if s.cut.IsZero() || time.Since(s.cut) >= again {
		s.bytes = batchBytes
	}
	return s.bytes
}

func (s *space) halve() { s.bytes, s.cut = s.size()/2, time.Now() }

// whole is what the first call of a transaction may have. It has more than its share while nothing
// speaks against that.
func (s *space) whole() int {
	if s.size() == batchBytes {
		return protocol.MaxData
	}
	return s.bytes
}
