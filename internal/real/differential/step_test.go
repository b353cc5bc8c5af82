package differential_test

import (
	"crypto/sha1" // the digest scheme is defined with SHA-1
	"encoding/base64"
	"fmt"
	"strings"
)

// sessions is the number of sessions in a run.
const sessions = 3

// A step is what one session does next.
type step struct {
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

func (s step) String() string {
	prefix := fmt.Sprintf("session %d: ", s.session)
	switch s.does {
	case doAuth:
		return prefix + fmt.Sprintf("auth %s %q", s.scheme, s.secret)
	case doClose:
		return prefix + "close"
	case doReconnect:
		return prefix + "reconnect"
	case doWrongPassword:
		return prefix + "reconnect with a wrong password"
	case doReturn:
		return prefix + "resume the closed session"
	case doFromFuture:
		return prefix + "reconnect from the future"
	}

	var list []string
	for _, r := range s.requests {
		list = append(list, r.String())
	}
	return prefix + strings.Join(list, "; ")
}

// A request is any request of the protocol. Fields that its operation does not have are ignored.
// Paths are below the root of the run, unless they do not start with a slash.
type request struct {
	op      int32
	path    string
	data    []byte
	acl     []entry
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

func (r request) String() string {
	s := opName(r.op)
	switch r.op {
	case opWhoAmI:
		return s
	case opMulti, opMultiRead:
		return fmt.Sprintf("%s %v", s, r.parts)
	case opSetWatches, opSetWatches2:
		return fmt.Sprintf("%s since=%d %q", s, r.since, r.watches)
	}

	s += fmt.Sprintf(" %q", r.path)
	switch r.op {
	case opCreate, opCreate2, opCreateContainer, opCreateTTL:
		s += fmt.Sprintf(" data=%q flags=%d acl=%v", r.data, r.flags, r.acl)
		if r.op == opCreateTTL {
			s += fmt.Sprintf(" ttl=%d", r.ttl)
		}
	case opSetData:
		s += fmt.Sprintf(" data=%q version=%d", r.data, r.version)
	case opSetACL:
		s += fmt.Sprintf(" acl=%v version=%d", r.acl, r.version)
	case opDelete, opCheck:
		s += fmt.Sprintf(" version=%d", r.version)
	case opExists, opGetData, opGetChildren, opGetChildren2:
		s += fmt.Sprintf(" watch=%v", r.watch)
	case opAddWatch, opRemoveWatches, opCheckWatches:
		s += fmt.Sprintf(" mode=%d", r.mode)
	}
	return s
}

// writes reports whether the request consumes a zxid.
func (r request) writes() bool {
	switch r.op {
	case opCreate, opCreate2, opCreateContainer, opCreateTTL, opDelete, opSetData, opSetACL, opCheck, opMulti:
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

func (at *target) acl(p packet, list []entry) packet {
	list = withJanitor(list)
	p = p.int32(int32(len(list)))
	for _, e := range list {
		p = p.int32(e.perms).string(e.scheme).string(strings.ReplaceAll(e.id, "{ip}", at.ip))
	}
	return p
}

// body returns the body of the request as the protocol encodes it.
func (at *target) body(r request) packet {
	var p packet
	switch r.op {
	case opWhoAmI:
		return p
	case opMulti, opMultiRead:
		for _, part := range r.parts {
			p = append(p.part(part.op, false), at.body(part)...)
		}
		return p.part(-1, true)
	case opSetWatches, opSetWatches2:
		p = p.int64(at.since(r.since))
		lists := r.watches[:]
		if r.op == opSetWatches {
			lists = lists[:3]
		}
		for _, list := range lists {
			p = p.int32(int32(len(list)))
			for _, path := range list {

				p = p.string(at.path(path))
			}
		}
		return p
	}
	p = p.string(at.path(r.path))
	switch r.op {
	case opCreate, opCreate2, opCreateContainer, opCreateTTL:
		p = at.acl(p.buffer(r.data), r.acl).int32(r.flags)
		if r.op == opCreateTTL {
			p = p.int64(r.ttl)
		}
	case opSetData:
		p = p.buffer(r.data).int32(r.version)
	case opSetACL:
		p = at.acl(p, r.acl).int32(r.version)
	case opDelete, opCheck:
		p = p.int32(r.version)
	case opExists, opGetData, opGetChildren, opGetChildren2:
		p = p.bool(r.watch)
	case opAddWatch, opRemoveWatches, opCheckWatches:
		p = p.int32(r.mode)
	}
	return p
}

const permAll = 31

var openACL = []entry{{permAll, "world", "anyone"}}

// janitorCredentials are those of the janitor, which has every permission on every node.
const janitorCredentials = "janitor:secret"

func withJanitor(list []entry) []entry {
	if len(list) == 0 || len(list) == 1 && list[0] == openACL[0] {
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
