package survey

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"
)

// A Recipe is the use of a path.
type Recipe string

// The recipes that can be told apart. An election of ours is a Lock: see Place.Use.
const (
	Lock          Recipe = "lock"
	RWLock        Recipe = "rwlock"
	Semaphore     Recipe = "semaphore"
	Election      Recipe = "election" // in the names of Curator's LeaderLatch, which no lock has
	Once          Recipe = "once"
	Queue         Recipe = "queue"
	Barrier       Recipe = "barrier"
	DoubleBarrier Recipe = "doublebarrier"
	Group         Recipe = "group"

	Value     Recipe = "value"     // a persistent node with data and without children (configuration, or a barrier with data)
	Leaf      Recipe = "leaf"      // a persistent node that never had data or children (a barrier that is set, or nothing)
	Empty     Recipe = "empty"     // a persistent node that had children: its recipe is not in use
	Directory Recipe = "directory" // the nodes below are not of one recipe
	Missing   Recipe = "missing"   // there is no such node
	Hidden    Recipe = "hidden"    // an ACL forbids to list it
)

// A Place is a path and its use.
type Place struct {
	Path   string    `json:"path"`
	Recipe Recipe    `json:"recipe"`
	Use    string    `json:"use,omitempty"`  // of a Lock: "lock", "election", or "lock or election" if the data doesn't tell
	Since  time.Time `json:"since,omitzero"` // when its node was created, by the server's clock

	Permits    int           `json:"permits,omitempty"`    // the size of a semaphore or a double barrier; 0 if unknown
	Contenders []Contender   `json:"contenders,omitempty"` // in order of arrival; in a line, holders come first
	More       int           `json:"-"`                    // the number of contenders in line that were not read
	Entries    *Entries      `json:"queue,omitempty"`      // the elements of a queue
	Done       int           `json:"done,omitempty"`       // the number of done keys of a once
	Unknown    []UnknownNode `json:"unknown,omitempty"`    // children that don't belong to the recipe
	Notes      []string      `json:"notes,omitempty"`      // other facts (numbers that run out, a gate without members)

	Below     []*Place `json:"below,omitempty"`     // in order of their paths
	Unread    []string `json:"-"`                   // children that were not read because there were too many nodes
	Truncated bool     `json:"truncated,omitempty"` // some of the place was not read
}

// Kind returns the name of the recipe, or the use of a Lock.
func (p *Place) Kind() string { return cmp.Or(p.Use, string(p.Recipe)) }

// Cut returns how many nodes at and below a place were not read (there were too many, or an ACL
// forbids it). Everything below those nodes is unknown too.
func (p *Place) Cut() (n int) {
	for place := range p.All() {
		n += len(place.Unread)
		if place.Recipe == Hidden {
			n++
		}
	}
	return n
}

// Misses reports whether a child of the place was not read but can be there.
func (p *Place) Misses(child string) bool {
	_, found := slices.BinarySearch(p.Unread, child)
	return found || p.Recipe == Hidden
}

// A State says whether a contender holds or waits.
type State string

// The states of contenders.
const (
	Holds  State = "holds"  // a lock, a permit, the right to run or an element of a queue
	Waits  State = "waits"  // in line
	Inside State = "inside" // a double barrier
	Member State = "member" // of a group
)

// A Contender is a node of a holder, a waiter or a member.
type Contender struct {
	Node    string    `json:"node"` // the name below the place's path
	State   State     `json:"state"`
	Mode    string    `json:"mode,omitempty"` // "read" or "write" of an rwlock, the key of a once, "lingers" for a lock that can be unused
	Library Library   `json:"library"`
	Session int64     `json:"-"`                   // the owner of the node; 0 if the node is not ephemeral
	Token   int64     `json:"token,omitempty"`     // the czxid of the node
	Since   time.Time `json:"since"`               // when the node was created (and got in line), by the server's clock
	Held    time.Time `json:"held_since,omitzero"` // when it began to hold, by the server's clock; zero if unknown
	Owner             // from the data
	Data    []byte    `json:"-"` // only the beginning if Cut is set
	Cut     bool      `json:"data_cut,omitempty"`
	Orphan  string    `json:"orphan,omitempty"` // why the node has no live contender; empty if it can have one
	Client  *Client   `json:"client,omitempty"` // nil if the servers were not asked
}

// A Client is the client of a contender's session, as the servers describe it.
type Client struct {
	Unknown string    `json:"unknown,omitempty"` // why nothing is known; else empty
	Address string    `json:"address,omitempty"` // empty if the client is not connected
	Server  string    `json:"server,omitempty"`
	Heard   time.Time `json:"heard,omitzero"` // when it was heard last, by this machine's clock; zero if unknown
	Ends    time.Time `json:"ends,omitzero"`  // the latest end of its session if it stays silent
}

// Entries describes the elements of a queue.
type Entries struct {
	Length   int       `json:"length"`
	Reserved int       `json:"reserved"`        // the number of reserved elements among the first Looked
	Looked   int       `json:"looked"`          // the number of elements that were read
	Oldest   time.Time `json:"oldest,omitzero"` // when the first element was offered, by the server's clock
	Created  int32     `json:"-"`               // the number of children that the queue ever had (the server's counter wraps)
}

// An UnknownNode is a child that doesn't belong to the recipe of its place.
type UnknownNode struct {
	Node      string    `json:"node"`
	Ephemeral bool      `json:"ephemeral"`
	Since     time.Time `json:"since"`
}

// All yields the place and all places below it. A place comes before the places below it.
func (p *Place) All() iter.Seq[*Place] {
	return func(yield func(*Place) bool) {
		for next := []*Place{p}; len(next) > 0; {
			last := next[len(next)-1]
			if !yield(last) {
				return
			}

			next = next[:len(next)-1]
			for _, below := range slices.Backward(last.Below) {
				next = append(next, below)
			}
		}
	}
}

// Find returns the contender with this node, or nil.
func (p *Place) Find(node string) *Contender {
	i := slices.IndexFunc(p.Contenders, func(c Contender) bool { return c.Node == node })
	if i < 0 {
		return nil
	}
	return &p.Contenders[i]
}

// Waiters returns the number of contenders that wait.
func (p *Place) Waiters() int { return len(p.Contenders) - p.Holders() + p.More }

// Holders returns the number of contenders that hold, are inside or are members.
func (p *Place) Holders() (n int) {
	for _, c := range p.Contenders {
		if c.State != Waits {
			n++
		}
	}
	return n
}

// An End says how a contender ended, as far as a [Viewer] can tell.
type End string

// The ends that can be told apart. An empty End is unknown.
const (
	Released End = "released" // the holder gave it back
	Lost     End = "lost"     // it was not given back: the session ended, or somebody broke it
	Unseen   End = "unseen"   // it ended while the viewer had no connection
)

// note adds a note about the place.
func (p *Place) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}
