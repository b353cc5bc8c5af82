package survey

import (
	"iter"
	"slices"
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

	Value     Recipe = "value"     // a node that lasts, has data and no children: configuration, or a barrier with data
	Leaf      Recipe = "leaf"      // a node that lasts, without data, and never had children: a barrier that is set, or nothing
	Empty     Recipe = "empty"     // a node that lasts and had children: of a recipe that is not in use
	Directory Recipe = "directory" // what is below is not of one recipe
	Missing   Recipe = "missing"   // there is no such node
	Hidden    Recipe = "hidden"    // an ACL forbids to list it
)

// A Place is a path and what it is used for.
type Place struct {
	Path   string    `json:"path"`
	Recipe Recipe    `json:"recipe"`
	Since  time.Time `json:"since,omitzero"` // the creation of its node, by the server's clock

	Permits    int           `json:"permits,omitempty"`    // how many a semaphore lets in, or a double barrier waits for; 0 if unknown
	Contenders []Contender   `json:"contenders,omitempty"` // in order of arrival; where there is a line, the holders first
	More       int           `json:"-"`                    // how many more are in line, which were not read
	Entries    *Entries      `json:"queue,omitempty"`      // of a queue
	Done       int           `json:"done,omitempty"`       // how many keys are done, of package once
	Unknown    []UnknownNode `json:"unknown,omitempty"`    // children that are not the recipe's
	Notes      []string      `json:"notes,omitempty"`      // what else is worth knowing: numbers that run out, a gate without members

	Below     []*Place `json:"below,omitempty"`     // in order of their paths
	Unread    []string `json:"-"`                   // children of which nothing is known: there were too many nodes
	Truncated bool     `json:"truncated,omitempty"` // there is more here, which was not read
}

// Cut returns how many nodes at and below a place were not read, because there were too many or an
// ACL forbids it. What is below them is unknown, too.
func (p *Place) Cut() (n int) {
	for place := range p.All() {
		n += len(place.Unread)
		if place.Recipe == Hidden {
			n++
		}
	}
	return n
}

// Misses reports whether a node below the place was not read, though it may be there.
func (p *Place) Misses(child string) bool {
	_, found := slices.BinarySearch(p.Unread, child)
	return found || p.Recipe == Hidden
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
	Node    string    `json:"node"` // its name below the place's path
	State   State     `json:"state"`
	Mode    string    `json:"mode,omitempty"` // "read" or "write" of an rwlock, the key of a once, the element of a queue, "lingers" if a lock may be unused; else empty
	Library Library   `json:"library"`
	Session int64     `json:"-"`                   // its owner; 0 if it is not ephemeral
	Token   int64     `json:"token,omitempty"`     // its czxid
	Since   time.Time `json:"since"`               // its creation, by the server's clock: it is in line since then
	Held    time.Time `json:"held_since,omitzero"` // since when it holds, by the server's clock; zero if that is not known
	Owner             // as its data say
	Data    []byte    `json:"-"` // the beginning, if Cut is set
	Cut     bool      `json:"data_cut,omitempty"`
	Orphan  string    `json:"orphan,omitempty"` // why no live contender stands behind it; empty if one may
	Client  *Client   `json:"client,omitempty"` // nil if the servers were not asked
}

// A Client is what servers tell of the client of a contender's session.
type Client struct {
	Unknown string    `json:"unknown,omitempty"` // why it is not known whether it is connected
	Address string    `json:"address,omitempty"` // empty if it is not
	Server  string    `json:"server,omitempty"`
	Heard   time.Time `json:"heard,omitzero"` // last, by this machine's clock; zero if that is not told
	Ends    time.Time `json:"ends,omitzero"`  // when its session ends at the latest, if nothing more is heard
}

// Entries describe the elements of a queue.
type Entries struct {
	Length   int       `json:"length"`
	Reserved int       `json:"reserved"`        // of those that were looked at
	Looked   int       `json:"looked"`          // at how many: the first ones
	Oldest   time.Time `json:"oldest,omitzero"` // when the first one was offered, by the server's clock; zero if there is none
	Created  int32     `json:"-"`               // how many children the queue's node ever had, by the server's counter, which wraps
}

// An UnknownNode is a child that is not of the recipe of its place.
type UnknownNode struct {
	Node      string    `json:"node"`
	Ephemeral bool      `json:"ephemeral"`
	Since     time.Time `json:"since"`
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

// Waiters returns how many wait.
func (p *Place) Waiters() int { return len(p.Contenders) - p.Holders() + p.More }

// Holders returns how many contenders hold, are inside or are members.
func (p *Place) Holders() (n int) {
	for _, c := range p.Contenders {
		if c.State != Waits {
			n++
		}
	}
	return n
}
