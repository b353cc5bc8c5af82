package layout

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// An entry's name begins with one of these, and ends in a hyphen and a sequence number.
const (
	QueuePlain    = "qn"    // the Java DistributedQueue writes it
	QueuePriority = "entry" // kazoo writes it, with a priority of three digits
	queueMoved    = "item"  // our own, for an entry that has moved: see [Entry]
)

// If an entry has never been a plain entry, its ID begins with one of these.
const (
	queueLater = "later" // offered with a delay
	queueDead  = "dead"  // dead letters
)

// DefaultPriority is kazoo's.
const DefaultPriority = 100

// An Entry is the parsed name of an entry's node:
//
//	qn-<sequence>
//	entry-<priority>-<sequence>
//	item-<ID>-<sequence>
//
// In the first two forms, the whole name is the ID. An entry that has moved has the third form: it
// keeps its ID, and the sequence number belongs to its new place. A [Record] beside the entry says
// more.
type Entry struct {
	Node     string // the whole name
	ID       string
	Sequence int32
	Priority int
}

// MovedEntry returns the name of an entry that has moved, up to its new sequence number.
func MovedEntry(id string) string { return queueMoved + "-" + id + "-" }

// ParseEntry parses a name, and reports whether an entry can have it. Names with a priority and no
// ID (kazoo writes them) count only if priorities is true.
func ParseEntry(node string, priorities bool) (e Entry, ok bool) {
	i := strings.LastIndexByte(node, '-')
	if i < 0 {
		return e, false
	}

	// A negative number begins at an earlier hyphen.
	if e, ok = parseAt(node, i, priorities); !ok && i > 0 && node[i-1] == '-' {
		e, ok = parseAt(node, i-1, priorities)
	}
	return e, ok
}

// parseAt parses a name whose sequence number comes after the hyphen at i.
func parseAt(node string, i int, priorities bool) (e Entry, ok bool) {
	e.Node, e.ID, e.Priority = node, node, DefaultPriority
	if e.Sequence, ok = ParseSequence(node[i+1:]); !ok {
		return e, false
	}
	if node[:i] == QueuePlain {
		return e, true
	}

	kind, rest, _ := strings.Cut(node[:i], "-")
	switch {
	case kind == QueuePriority && priorities && len(rest) == 3:
		priority, ok := parseNumber(rest)
		e.Priority = int(priority)
		return e, ok
	// The record of a moved entry has its ID as its name.
	case kind == queueMoved && rest != "" && rest != "." && rest != "..":
		// A moved entry keeps its priority, which its ID has.
		e.ID = rest
		if of, ok := ParseEntry(rest, true); ok {
			e.Priority = of.Priority
		}
		return e, true
	}

	return e, false
}

// parseNumber reads digits and nothing else. (A greater time than 2^47 is after the year 6000.)
func parseNumber(digits string) (n int64, ok bool) {
	u, err := strconv.ParseUint(digits, 10, 47)
	return int64(u), err == nil
}

// IsEntryID reports whether an entry can have this ID.
func IsEntryID(id string) bool {
	if _, ok := ParseEntry(id, true); ok {
		return true
	}

	kind, _, ok := strings.Cut(id, "-")
	return ok && (kind == queueLater || kind == queueDead)
}

// DeadID returns the ID of a dead letter. It must be given a name that is never used again.
func DeadID(name string) string { return queueDead + "-" + name }

// DelayedBucket returns the directory of the entries that are due at about that time (in
// milliseconds since 1970). There's one for each minute, more or less. Later directories have
// greater names.
func DelayedBucket(due int64) string { return fmt.Sprintf("%012d", due>>16) }

// BucketDue returns when the first entry of a directory can be due.
func BucketDue(bucket string) (due int64, ok bool) {
	n, ok := parseNumber(bucket)
	return n << 16, ok
}

// DelayedEntry returns the name of an entry in its directory. If id is empty, the sequence number
// becomes part of the ID.
func DelayedEntry(due int64, id string) string {
	if id == "" {
		return fmt.Sprintf("%d,%s-%d-", due, queueLater, due)
	}
	return fmt.Sprintf("%d,%s", due, id)
}

// HeldEntry returns the name of a reserved entry in its consumer's directory.
func HeldEntry(number int, id string) string { return fmt.Sprintf("%d,%s", number, id) }

// ParseBeside parses the name of a reserved or a delayed entry. The number of a delayed entry says
// when it is due.
func ParseBeside(node string) (number int64, id string, ok bool) {
	digits, id, found := strings.Cut(node, ",")
	number, ok = parseNumber(digits)
	return number, id, found && ok && id != ""
}

// A Record says more about an entry that was reserved, has come back, is delayed or is a dead
// letter. If the entry's data isn't in a node of its own, it follows the record.
type Record struct {
	ID       string  `json:"id,omitempty"`       // empty if only the node's name has it
	Node     string  `json:"node,omitempty"`     // the entry's place; empty if it has none
	Since    int64   `json:"since,omitempty"`    // when it was first offered, in milliseconds since 1970
	Attempts int     `json:"attempts,omitempty"` // how often it was reserved, including this time
	Returns  int     `json:"returns,omitempty"`  // how often it has come back to the queue
	Reason   string  `json:"reason,omitempty"`   // why the last attempt failed
	Origin   *Origin `json:"origin,omitempty"`   // of a dead letter
}

// An Origin says where a dead letter comes from.
type Origin struct {
	Queue    string `json:"queue"`
	ID       string `json:"id"`
	Attempts int    `json:"attempts"`
}

// ReasonLength returns how many bytes of a reason a record keeps, if requests have this limit.
func ReasonLength(limit int) int { return min(4<<10, limit/16) }

// WithReason returns r with another reason, cut off after most bytes.
func (r Record) WithReason(reason string, most int) Record {
	reason = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) && c != '\n' && c != '\t' {
			return ' '
		}
		return c
	}, reason)

	// The cut can be in the middle of a character.
	r.Reason = strings.ToValidUTF8(reason[:min(len(reason), most)], "")
	return r
}

// Append returns the record as one line, followed by data.
func (r Record) Append(data []byte) []byte {
	var b bytes.Buffer
	b.Grow(200 + len(data))
	encode := json.NewEncoder(&b)
	encode.SetEscapeHTML(false)
	encode.Encode(r) // strings and numbers, so it can't fail

	b.Write(data)
	return b.Bytes()
}

// ParseRecord splits the data of a node into a record and the rest. A time or a place that no entry
// can have is left out.
func ParseRecord(b []byte) (r Record, data []byte, ok bool) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 || json.Unmarshal(b[:i], &r) != nil {
		return Record{}, nil, false
	}
	if r.Since>>47 != 0 { // see parseNumber
		r.Since = 0
	}
	if _, ok := ParseEntry(r.Node, true); !ok || strings.Contains(r.Node, "/") {
		r.Node = ""
	}
	return r, b[i+1:], true
}
