package transcript

import (
	"crypto/sha1" // the digest scheme is defined with SHA-1
	"encoding/base64"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// sessions is the number of sessions in a run.
const sessions = 3

// A Step is what one session does next.
type Step struct {
	session  int
	does     action
	requests []request // sent in a row, without waiting for answers
	scheme   string    // of doAuth
	secret   string
}

type action int

const (
	doRequests      action = iota
	doAuth                 // authenticate, successfully or not
	doClose                // close the session; the next step starts another
	doReconnect            // resume the session on another connection
	doWrongPassword        // try to resume with a wrong password, while connected
	doReturn               // try to resume the session closed last
	doFromFuture           // reconnect claiming a zxid that the server has not reached
)

// actions are the words for steps that send no requests and do not authenticate.
var actions = map[action]string{
	doClose:         "close",
	doReconnect:     "reconnect",
	doWrongPassword: "reconnect with a wrong password",
	doReturn:        "resume the closed session",
	doFromFuture:    "reconnect from the future",
}

// String returns the step as [Cases] reads it.
func (s Step) String() string {
	text, ok := actions[s.does]
	switch {
	case s.does == doAuth:
		text = fmt.Sprintf("auth %q %q", s.scheme, s.secret)
	case !ok:
		text = joined(s.requests)
	}
	return fmt.Sprintf("session %d: %s", s.session, text)
}

// Requests yields the operations and bodies of the step's requests, for nodes below root.
func (s Step) Requests(root string) iter.Seq2[zkwire.Op, []byte] {
	return func(yield func(zkwire.Op, []byte) bool) {
		for _, r := range s.requests {
			if !yield(r.op, (&target{root: root}).body(nil, r)) {
				return
			}
		}
	}
}

func joined(requests []request) string {
	var list []string
	for _, r := range requests {
		list = append(list, r.String())
	}
	return strings.Join(list, "; ")
}

// A request is any request of the protocol. Fields that its operation doesn't have are ignored.
// Paths are below the root of the run, unless they do not start with a slash.
type request struct {
	op      zkwire.Op
	path    string
	data    []byte
	acl     []entry // nil: openACL
	flags   int32
	ttl     int64
	version int32
	watch   bool
	mode    int32       // of addWatch, and the kind of removeWatches and checkWatches
	parts   []request   // of multi and multiRead
	since   int         // of setWatches: the number of this run's writes that the client has seen
	watches [5][]string // data, exist, child, persistent, recursive
}

// An entry is an entry of an access control list. In ids, {ip} stands for the client's address.
type entry struct {
	perms      int32
	scheme, id string
}

// String returns the operation, the path and all fields that are not zero, as parser reads them.
func (r request) String() string {
	words := []string{r.op.String()}
	add := func(given bool, format string, values ...any) {
		if given {
			words = append(words, fmt.Sprintf(format, values...))
		}
	}

	add(r.path != "", "%+q", r.path)
	add(r.parts != nil, "[%s]", joined(r.parts))
	add(r.data != nil, "data=%+q", r.data)
	add(r.flags != 0, "flags=%d", r.flags)
	add(r.ttl != 0, "ttl=%d", r.ttl)
	add(r.version != 0, "version=%d", r.version)
	add(r.mode != 0, "mode=%d", r.mode)
	add(r.since != 0, "since=%d", r.since)
	var acl strings.Builder
	for _, e := range r.acl {
		fmt.Fprintf(&acl, " %d %q %q", e.perms, e.scheme, e.id)
	}
	add(r.acl != nil, "acl=(%s)", strings.TrimSpace(acl.String()))
	for i, list := range r.watches {
		add(len(list) > 0, "%s=(%s)", watchLists[i], strings.Trim(fmt.Sprintf("%+q", list), "[]"))
	}
	add(r.watch, "watch")
	return strings.Join(words, " ")
}

// watchLists are the names of the lists of setWatches.
var watchLists = []string{"ofData", "ofExists", "ofChildren", "persistent", "recursive"}

// writes reports whether the request consumes a zxid.
func (r request) writes() bool {
	switch r.op {
	case zkwire.OpCreate, zkwire.OpCreate2, zkwire.OpCreateContainer, zkwire.OpCreateTTL, zkwire.OpDelete, zkwire.OpSetData, zkwire.OpSetACL, zkwire.OpCheck, zkwire.OpMulti:
		return true
	}
	return false
}

// A target holds what differs between servers and runs: the values that requests must be adapted
// to.
type target struct {
	root  string
	ip    string  // the client's address, as the server sees it
	zxids []int64 // the zxids of the writes so far
}

func (at *target) path(path string) string {
	switch {
	case path == "/":
		return at.root
	case strings.HasPrefix(path, "/"):
		return at.root + path
	}
	return path
}

func (at *target) since(n int) int64 {
	if n == 0 || len(at.zxids) == 0 {
		return 0
	}
	return at.zxids[min(n, len(at.zxids))-1]
}

func (at *target) acl(b []byte, list []entry) []byte {
	if list == nil {
		list = openACL
	}
	list = withJanitor(list)
	b = zkwire.AppendInt32(b, int32(len(list)))
	for _, e := range list {
		b = zkwire.AppendString(zkwire.AppendInt32(b, e.perms), e.scheme)
		b = zkwire.AppendString(b, strings.ReplaceAll(e.id, "{ip}", at.ip))
	}
	return b
}

// body appends the body of the request as the protocol encodes it.
func (at *target) body(b []byte, r request) []byte {
	switch r.op {
	case zkwire.OpWhoAmI:
		return b
	case zkwire.OpMulti, zkwire.OpMultiRead:
		for _, part := range r.parts {
			b = at.body(partHead(b, part.op, false), part)
		}
		return partHead(b, -1, true)
	case zkwire.OpSetWatches, zkwire.OpSetWatches2:
		b = zkwire.AppendInt64(b, at.since(r.since))
		// setWatches has three lists, and setWatches2 has five.
		lists := r.watches[:]
		if r.op == zkwire.OpSetWatches {
			lists = lists[:3]
		}
		for _, list := range lists {
			b = zkwire.AppendInt32(b, int32(len(list)))
			for _, path := range list {
				b = zkwire.AppendString(b, at.path(path))
			}
		}
		return b
	}

	b = zkwire.AppendString(b, at.path(r.path))
	switch r.op {
	case zkwire.OpCreate, zkwire.OpCreate2, zkwire.OpCreateContainer, zkwire.OpCreateTTL:
		b = zkwire.AppendInt32(at.acl(zkwire.AppendBuffer(b, r.data), r.acl), r.flags)
		if r.op == zkwire.OpCreateTTL {
			b = zkwire.AppendInt64(b, r.ttl)
		}
	case zkwire.OpSetData:
		b = zkwire.AppendInt32(zkwire.AppendBuffer(b, r.data), r.version)
	case zkwire.OpSetACL:
		b = zkwire.AppendInt32(at.acl(b, r.acl), r.version)
	case zkwire.OpDelete, zkwire.OpCheck:
		b = zkwire.AppendInt32(b, r.version)
	case zkwire.OpExists, zkwire.OpGetData, zkwire.OpGetChildren, zkwire.OpGetChildren2:
		b = zkwire.AppendBool(b, r.watch)
	case zkwire.OpAddWatch, zkwire.OpRemoveWatches, zkwire.OpCheckWatches:
		b = zkwire.AppendInt32(b, r.mode)
	}
	return b
}

// partHead appends the head of a part of a multi request, or its end.
func partHead(b []byte, op zkwire.Op, done bool) []byte {
	return zkwire.AppendInt32(zkwire.AppendBool(zkwire.AppendInt32(b, int32(op)), done), -1)
}

const permAll = 31

var openACL = []entry{{permAll, "world", "anyone"}}

// janitorCredentials are those of the janitor, which has every permission on every node.
const janitorCredentials = "janitor:secret"

func withJanitor(list []entry) []entry {
	if len(list) == 0 || slices.Equal(list, openACL) {
		return list
	}
	return append(list[:len(list):len(list)], entry{permAll, "digest", digest(janitorCredentials)})
}

// digest returns the id that the credentials user:password prove.
func digest(credentials string) string {
	sum := sha1.Sum([]byte(credentials))
	user, _, _ := strings.Cut(credentials, ":")
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}
