package survey

import (
	"iter"
	"time"
)

// A Recipe is what a path is used for.
type Recipe string

// The recipes that are told apart. A lock and an election are the same thing.
const (
	Lock          Recipe = "lock"
	RWLock        Recipe = "rwlock"
	Semaphore     Recipe = "semaphore"
	Election      Recipe = "election" // of a spelling that is no lock's: Curator's LeaderLatch
	Once          Recipe = "once"
	Queue         Recipe = "queue"
	Barrier       Recipe = "barrier"
	DoubleBarrier Recipe = "doublebarrier"
	Group         Recipe = "group"

	Leaf      Recipe = "leaf"      // a node that lasts and never had children: a barrier that is set, or nothing
	Empty     Recipe = "empty"     // a node that lasts and had children: of a recipe that is not in use
	Directory Recipe = "directory" // what is below is not of one recipe
	Missing   Recipe = "missing"   // there is no such node
	Hidden    Recipe = "hidden"    // an ACL forbids to list it
)

// A Place is a path and what it is used for.
type Place struct {
	Path   string
	Recipe Recipe
	Since  time.Time // the creation of its node, by the server's clock

	Permits    int           // how many a semaphore lets in, or a double barrier waits for; 0 if unknown
	Contenders []Contender   // in order of arrival; where there is a line, the holders first
	More       int           // how many more are in line, which were not read
	Entries    *Entries      // of a queue
	Done       int           // how many keys are done, of package once
	Unknown    []UnknownNode // children that are not the recipe's
	Notes      []string      // what else is worth knowing: numbers that run out, a gate without members

	Below     []*Place // in order of their paths
	Truncated bool     // there is more below, which was not read
}

// A State is what a contender has.
type State string

// The states of contenders.
const (
	Holds  State = "holds"  // a lock, a permit, the right to run, or an entry of a queue
	Waits  State = "waits"  // in line
	Inside State = "inside" // a double barrier
	Member State = "member" // of a group
)

// A Contender is a node that holds something, waits for it, or is a member.
type Contender struct {
	Node    string // its name below the place's path
	State   State
	Mode    string // "read" or "write" of an rwlock, the key of a once, the element of a queue; else empty
	Library Library
	Session int64     // its owner; 0 if it is not ephemeral
	Token   int64     // its czxid
	Since   time.Time // its creation, by the server's clock
	Owner   Owner     // as its data say
	Data    []byte
	Orphan  string // why no live contender stands behind it; empty if one may
}

// Entries describe the elements of a queue.
type Entries struct {
	Length   int
	Reserved int       // of those that were looked at
	Looked   int       // at how many: the first ones
	Oldest   time.Time // when the first one was offered, by the server's clock; zero if there is none
	Created  int32     // how many children the queue's node ever had, by the server's counter, which wraps
}

// An UnknownNode is a child that is not of the recipe of its place.
type UnknownNode struct {
	Node      string
	Ephemeral bool
	Since     time.Time
}

// All yields the place and all below it, each before what is below it.
func (p *Place) All() iter.Seq[*Place] {
	return func(yield func(*Place) bool) { p.each(yield) }
}

func (p *Place) each(yield func(*Place) bool) bool {
	if !yield(p) {
		return false
	}

	for _, below := range p.Below {
		if !below.each(yield) {
			return false
		}
	}
	return true
}

// Find returns the contender with this node, or nil.
func (p *Place) Find(node string) *Contender {
	for i := range p.Contenders {
		if p.Contenders[i].Node == node {
			return &p.Contenders[i]
		}
	}
	return nil
}

// Holders returns how many contenders hold, are inside or are members.
func (p *Place) Holders() (n int) {
	for _, c := range p.Contenders {
		if c.State != Waits {
			n++
		}
	}
	return n
}
