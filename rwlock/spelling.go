package rwlock

import (
	"fmt"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A Spelling is a convention for naming the nodes of contenders. All conventions are read, and one
// is written.
type Spelling int

const (
	Native  Spelling = iota // read- and write-, for Go alone
	Curator                 // __READ__ and __WRIT__, as Apache Curator's InterProcessReadWriteLock
	Kazoo                   // __rlock__ and __lock__, as kazoo's ReadLock and WriteLock
)

var spellings = [...]struct{ read, write string }{
	Native:  {"read-", "write-"},
	Curator: {"__READ__", "__WRIT__"},
	Kazoo:   {"__rlock__", "__lock__"},
}

// kinds are the beginnings of all names that belong to one line.
var kinds = func() (all []string) {
	for _, s := range spellings {
		all = append(all, s.read, s.write)
	}
	return all
}()

// WithSpelling names the nodes of contenders as the other library at the path does, so that it
// respects ours. The default is [Native], which only this package understands. Contenders of this
// package respect each other, whatever their spellings. The package documentation says what the
// other libraries do.
func WithSpelling(s Spelling) Option {
	return func(m *RWMutex) {
		if s < 0 || int(s) >= len(spellings) {
			m.invalid = fmt.Errorf("no such spelling: %d", s)
			return
		}
		m.read.Kind, m.write.Kind = spellings[s].read, spellings[s].write
	}
}

// exclusive reports whether kind is that of a writer.
func exclusive(kind string) bool {
	for _, s := range spellings {
		if kind == s.write {
			return true
		}
	}
	return false
}

// behindWriter returns whom a reader waits for: the nearest writer before it, or -1.
func behindWriter(line []protocol.Name, self int) (ahead int) {
	for ahead = self - 1; ahead >= 0 && !exclusive(line[ahead].Kind); ahead-- {
	}
	return ahead
}
