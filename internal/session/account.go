package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// maxEphemeral is how many bytes the ephemeral nodes of a session can take. When a session ends,
// the server writes all their paths into one transaction. If that exceeds about two megabytes
// (twice jute.maxbuffer), no server can read its log any more, and the ensemble never starts again.
const maxEphemeral = 1_500_000

// An account counts the bytes of a session's ephemeral nodes. Every create draws on it, in every
// recipe and view. A node stays in it from before its create is sent until the node is known to be
// gone, or to have never been created. It is safe for concurrent use.
type account struct {
	mu        sync.Mutex // protects the fields below
	used      int
	nodes     map[string]entry // by absolute path
	recounted time.Time
}

// An entry is a node, or all the sequential nodes with one prefix whose creates had no answer.
type entry struct {
	created  bool
	numbered bool  // the path lacks its number
	creates  int32 // creates whose outcome isn't known yet
	flying   int32 // how many of these are under way
}

// size returns how many bytes the entry takes: each path, and the length before it.
func (e entry) size(path string) int {
	switch {
	case e.numbered:
		return int(e.creates) * (len(path) + sequenceDigits + 4)
	case e.created || e.creates > 0:
		return len(path) + 4
	}
	return 0
}

// sequenceDigits is how many digits a server appends to the name of a sequential node.
const sequenceDigits = 10

// A draft is the change that one request can make in an account.
type draft struct {
	account *account
	made    []creation
	gone    []string // the paths that it deletes
	room    struct { // for one of each, which is what most requests have
		made [1]creation
		gone [1]string
	}
}

// A creation is an ephemeral node that a request creates.
type creation struct {
	op       int // the number of the operation
	path     string
	numbered bool
}

// draw enters the creates of a transaction into the account, or returns [ErrSessionFull]. The
// transaction's deletes make room. A node that it creates and deletes takes none.
func (a *account) draw(ops ...any) (*draft, error) {
	d := &draft{account: a}
	d.made, d.gone = d.room.made[:0], d.room.gone[:0]

	for i, op := range ops { // the last operation on a path decides
		switch op := op.(type) {
		case *zk.DeleteRequest:
			d.made = slices.DeleteFunc(d.made, func(c creation) bool { return c.path == op.Path })
			d.gone = append(d.gone, op.Path)
		case *zk.CreateRequest:
			if op.Flags != zk.FlagEphemeral && op.Flags != zk.FlagEphemeralSequential {
				continue
			}

			d.gone = slices.DeleteFunc(d.gone, func(gone string) bool { return gone == op.Path })
			d.made = append(d.made, creation{i, op.Path, op.Flags == zk.FlagEphemeralSequential})
		}
	}
	if len(d.made)+len(d.gone) == 0 {
		return nil, nil
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	// A create is entered before it is sent because its answer can be lost.
	before := a.used

	for _, c := range d.made {
		e := a.nodes[c.path]
		e.numbered = c.numbered
		e.creates++
		e.flying++
		a.set(c.path, e)
	}

	room := 0
	for _, path := range d.gone {
		room += a.room(path)
	}
	// A transaction that needs no more room is never refused.
	if a.used > before && a.used-room > maxEphemeral {
		d.landed()
		d.undo()
		return nil, fmt.Errorf("%w: its ephemeral nodes take %d bytes, and %d are the limit", ErrSessionFull, a.used, maxEphemeral)
	}

	return d, nil
}

// end notes the outcome of the request and returns its error. names are the paths that the server
// gave to the nodes, by the number of the operation.
func (d *draft) end(err error, names ...string) error {
	if d == nil {
		return err
	}

	d.account.mu.Lock()
	defer d.account.mu.Unlock()
	d.landed()
	switch {
	case err == nil:
		for _, c := range d.made {
			d.account.drop(c.path)
			d.account.put(names[c.op])
		}

		for _, path := range d.gone {
			d.account.drop(path)
		}
	case conn.OutcomeOf(err) == conn.Unknown:
		return &pendingError{err, d}
	default:
		d.undo()
	}

	return err
}

// landed notes that the creates aren't under way any more. The caller holds the account's mu.
func (d *draft) landed() {
	for _, c := range d.made {
		e := d.account.nodes[c.path]
		e.flying = max(e.flying-1, 0)
		d.account.set(c.path, e)
	}
}

// undo notes that the creates weren't executed. Other requests can have created the nodes, or still
// create them. The caller holds the account's mu.
func (d *draft) undo() {
	for _, c := range d.made {
		e := d.account.nodes[c.path]
		e.creates = max(e.creates-1, 0)
		d.account.set(c.path, e)
	}
}

// A pendingError is the error of a request that was perhaps executed.
type pendingError struct {
	error
	draft *draft
}

func (p *pendingError) Unwrap() error { return p.error }

// settled notes whether the request with this error was executed.
func settled(err error, executed bool) {
	p := (*pendingError)(nil)
	if !errors.As(err, &p) {
		return
	}

	a := p.draft.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if !executed {
		p.draft.undo()
		return
	}

	for _, path := range p.draft.gone {
		a.drop(path)
	}
}

// settle replaces the entry of a path by the nodes that exist unless a request has changed it.
func (a *account) settle(path string, before entry, exist []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.nodes[path] != before {
		return
	}

	a.set(path, entry{})

	for _, node := range exist {
		a.put(node)
	}
}

// gone notes that there is no node at an absolute path.
func (a *account) gone(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(path)
}

// missing notes the nodes of a transaction's operations that there can't be, because one of the
// operations has found no node.
func (a *account) missing(ops []any, found any) {
	verb, top := conn.OpOf(found)
	if verb == "create" {
		top = layout.Parent(top)
	}
	for _, op := range ops {
		if _, node := conn.OpOf(op); node == top || strings.HasPrefix(node, top+"/") {
			a.gone(node)
		}
	}
}

// found notes the number of a created node, whose path without the number is prefix.
func (a *account) found(prefix, path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(prefix)
	a.put(path)
}

// put notes that a node was created. The caller holds mu.
func (a *account) put(path string) {
	e := a.nodes[path]
	e.created = true
	a.set(path, e)
}

// drop notes that a node is gone (one of them, if several lack their numbers). The caller holds mu.
func (a *account) drop(path string) {
	key := a.key(path)
	e := a.nodes[key]
	if e.numbered && e.creates > 1 {
		e.creates--
	} else {
		e = entry{}
	}
	a.set(key, e)
}

// room returns how many bytes a deletion frees. The caller holds mu.
func (a *account) room(path string) int {
	key := a.key(path)
	e := a.nodes[key]
	e.creates = min(e.creates, 1)
	return e.size(key)
}

// key returns under which path a node is in the account. If the answer to its create was lost, that
// path has no number. The caller holds mu.
func (a *account) key(path string) string {
	if _, there := a.nodes[path]; !there {
		if n := len(path) - sequenceDigits; n > 0 && a.nodes[path[:n]].numbered {
			return path[:n]
		}
	}
	return path
}

// set replaces an entry, and counts the bytes that are used. The caller holds mu.
func (a *account) set(path string, e entry) {
	size := e.size(path)
	a.used += size - a.nodes[path].size(path)
	if size == 0 {
		delete(a.nodes, path)
		return
	}
	if a.nodes == nil {
		a.nodes = make(map[string]entry)
	}

	a.nodes[path] = e
}
