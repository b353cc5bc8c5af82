package rwlock

import (
	"fmt"
	"slices"

	"github.com/zkrecipes/zkrecipes/protocol/line"
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

// kinds has all contenders that belong to one line, and readers the kinds of readers.
var kinds, readers = func() (all []line.Kind, readers []string) {
	for _, s := range spellings {
		all = append(all, line.Kind{Name: s.read}, line.Kind{Name: s.write, Exclusive: true})
		readers = append(readers, s.read)
	}
	return all, readers
}()

// WithSpelling names the nodes of contenders as the other library at the path does, so that it
// respects ours. The default is [Native], which only this package understands. Contenders of this
// package respect each other, whatever their spellings. The package documentation says how the
// other libraries behave.
func WithSpelling(s Spelling) Option {
	return func(m *RWMutex) error {
		if s < 0 || int(s) >= len(spellings) {
			return fmt.Errorf("no such spelling: %d", s)
		}
		m.read.Kind, m.write.Kind = spellings[s].read, spellings[s].write
		return nil
	}
}

// exclusive reports whether kind is a writer's.
func exclusive(kind string) bool {
	return slices.Contains(kinds, line.Kind{Name: kind, Exclusive: true})
}

// isReader reports whether node is the name of a reader's node.
func isReader(node string) bool {
	_, ok := line.ParseName(node, readers...)
	return ok
}

// nearestWriter returns a reader's blocker: the nearest writer before it.
func nearestWriter(names []line.Name, self int) []line.Name {
	for i := self - 1; i >= 0; i-- {
		if exclusive(names[i].Kind) {
			return names[i : i+1]
		}
	}
	return nil
}
