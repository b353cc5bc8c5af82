package survey

import (
	"regexp"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A Library is whose nodes are spelt in a way.
type Library string

// The libraries that are told apart.
const (
	Ours    Library = "zkrecipes"
	ZKLock  Library = "zk.Lock" // of go-zookeeper
	Curator Library = "curator"
	Kazoo   Library = "kazoo"
	Unknown Library = "unknown"
)

// A name is the name of a contender's node, taken apart.
type name struct {
	node     string
	kind     string // as it is spelt, without its separators: "lock", "READ"
	sequence int32
	library  Library
	owner    string // tells the contender from all others; empty if the name does not
	session  int64  // that the name claims to belong to, or 0
	permits  int    // of a double barrier, in the names of its members; 0 without
	key      string // of package once
}

// The kinds of contenders in the lines of all recipes, as they are spelt.
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

// parseName takes a node's name apart if it ends in one of the kinds and a sequence number, and
// reports whether it does.
func parseName(node string, kinds ...string) (name, bool) {
	parsed, ok := line.ParseName(node, kinds...)
	if !ok {
		return name{}, false
	}

	number := node[strings.LastIndex(node, parsed.Kind)+len(parsed.Kind):]
	head := node[:len(node)-len(number)-len(parsed.Kind)]
	n := name{node: node, kind: strings.Trim(parsed.Kind, "-_"), sequence: parsed.Sequence, library: Unknown}

	owner, between, ours := recipe.ParseOwner(head)
	switch {
	case ours || parsed.Owner != recipe.Owner{}:
		if !ours { // nothing stands between the owner and the kind
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

// parseMember takes the name of a member of our double barrier apart.
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
