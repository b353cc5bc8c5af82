package survey

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A Library is a client library, recognised by the spelling of its nodes' names.
type Library string

// The libraries that can be told apart.
const (
	Ours    Library = "zkrecipes"
	ZKLock  Library = "zk.Lock" // of go-zookeeper
	Curator Library = "curator"
	Kazoo   Library = "kazoo"
	Unknown Library = "unknown"
)

// A name is the parsed name of a contender's node.
type name struct {
	node     string
	kind     string // as in the name, without separators ("lock", "READ")
	sequence int32
	library  Library
	owner    string // unique for each contender; empty if the name has none
	session  int64  // the session in the name, or 0
	permits  int    // the size of a double barrier, in its members' names; 0 without
	key      string // the key of a once
}

// The kinds of contenders of all recipes, as they are spelt in names.
var (
	lockKinds   = []string{"lock-", "__lock__"}
	readKinds   = []string{"read-", "__READ__", "__rlock__"}
	writeKinds  = []string{"write-", "__WRIT__"}
	permitKinds = []string{"permit-"}
	onceKinds   = []string{"-run-"}
	latchKinds  = []string{"latch-"}
	leaseKinds  = []string{"lease-"}
)

var (
	protected = regexp.MustCompile(`^_c_([0-9a-f]{32})-$`)                                // zk.Conn's protected nodes
	curators  = regexp.MustCompile(`^_c_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-$`) // Curator's
	kazoos    = regexp.MustCompile(`^[0-9a-f]{32}$`)                                      // kazoo's, before the kind
	uuids     = regexp.MustCompile(`^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)       // whole names of Curator's members
	parties   = regexp.MustCompile(`^[0-9a-f]{32}(?:__party__|-.*)$`)                     // of kazoo's members
	entries   = regexp.MustCompile(`^(?:qn|item-.*|entry-\d{3}|queue)--?\d{10}$`)         // of all queues
	gateID    = regexp.MustCompile(`^ready-[0-9a-f]{16}-[0-9a-f]{8}$`)                    // beside the gate of a double barrier
	barrierID = regexp.MustCompile(`^(.+)-[0-9a-f]{16}-[0-9a-f]{8}-barrier$`)             // beside an ephemeral barrier
)

// parseName parses a name that ends in one of the kinds and a sequence number, and reports whether
// it does.
func parseName(node string, kinds ...string) (name, bool) {
	parsed, ok := line.ParseName(node, kinds...)
	if !ok {
		return name{}, false
	}

	number := node[strings.LastIndex(node, parsed.Kind)+len(parsed.Kind):]
	head := node[:len(node)-len(number)-len(parsed.Kind)]
	n := name{node: node, kind: strings.Trim(parsed.Kind, "-_"), sequence: parsed.Sequence, library: Unknown}

	// Our names begin with an owner. A once has its key between the owner and the kind.
	owner, between, ours := recipe.ParseOwner(head)
	switch {
	case ours || parsed.Owner != recipe.Owner{}:
		if !ours { // there is nothing between the owner and the kind
			owner, between = parsed.Owner, ""
		}

		n.library, n.owner, n.session = Ours, owner.String(), owner.Session
		n.key = between
	case protected.MatchString(head):
		n.library, n.owner = ZKLock, protected.FindStringSubmatch(head)[1]
	case curators.MatchString(head):
		n.library, n.owner = Curator, curators.FindStringSubmatch(head)[1]
	case kazoos.MatchString(head):
		n.library, n.owner = Kazoo, head
	}
	return n, true
}

// parseMember parses the name of a member of our double barrier.
func parseMember(node string) (name, bool) {
	m, ok := layout.ParseDouble(node)
	if !ok {
		return name{}, false
	}

	owner, _, _ := recipe.ParseOwner(node)
	return name{
		node: node, kind: "member", sequence: m.Sequence, library: Ours,
		owner: m.Owner, session: owner.Session, permits: m.Size,
	}, true
}

// compare orders names by their sequence numbers. Numbers beyond the end of the counter come last.
func (n name) compare(other name) int {
	return cmp.Compare(uint32(n.sequence), uint32(other.sequence))
}

func (n name) isReader() bool { return n.kind == "read" || n.kind == "READ" || n.kind == "rlock" }

// mode returns the kind of access that a contender asks for, if the recipe has several kinds.
func (n name) mode(r Recipe) string {
	switch {
	case r == RWLock && n.isReader():
		return "read"
	case r == RWLock:
		return "write"
	case r == Once:
		return n.key
	}
	return ""
}
