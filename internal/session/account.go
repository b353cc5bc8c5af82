package session

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
)

// maxEphemeral is how many bytes the ephemeral nodes of a session may take. When a session ends, the
// server writes the paths of all of them into one transaction. If that has more than some two
// megabytes (twice jute.maxbuffer), no server can read its log any more: the ensemble never starts
// again.
const maxEphemeral = 1_500_000

// An account counts the bytes of the ephemeral nodes of a session. All creates of this package draw
// on it, in whatever recipe and view. A node is in it from before its create is sent until it is
// known to be gone, or to have never been created. It is safe for concurrent use.
type account struct {
	mu        sync.Mutex // protects what follows
	used      int
	nodes     map[string]entry // by their absolute paths
	recounted time.Time
}

// A progress is what is known about a node in an account.
type progress int8

const (
	created   progress = iota // it was created
	creating                  // it is being created
	doubtful                  // it may have been created: no answer has come
	numbering                 // it is being created or may have been, and its path lacks the number at the end
)

// An entry is a node in an account, or several creates of sequential nodes that have no number yet.
type entry struct {
	progress
	creates int // that are being executed or may have been
	flying  int // of these, those being executed
}

// A draft is what one request may change in an account.
type draft struct {
	account *account
	made    map[int]string // paths that it creates, as they are asked for, by the number of the operation
	fresh   []string       // those of them that were not in the account before
	gone    []string       // paths that it deletes
}

// draw enters what a transaction creates into the account, or returns [ErrSessionFull]. What the
// transaction deletes makes room. What it creates and deletes takes none.
func (a *account) draw(ops ...any) (*draft, error) {
	d := draft{account: a}
	for i, op := range ops { // of a path that several of them name, the last decides
		switch op := op.(type) {
		case *zk.DeleteRequest:
			maps.DeleteFunc(d.made, func(_ int, made string) bool { return made == op.Path })
			d.gone = append(d.gone, op.Path)
		case *zk.CreateRequest:
			if op.Flags != zk.FlagEphemeral && op.Flags != zk.FlagEphemeralSequential {
				continue
			}
			d.gone = slices.DeleteFunc(d.gone, func(gone string) bool { return gone == op.Path })
			if d.made == nil {
				d.made = make(map[int]string, 1)
			}
			d.made[i] = op.Path
		}
	}
	if len(d.made)+len(d.gone) == 0 {
		return nil, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.used
	for i, path := range d.made {
		p := creating
		if ops[i].(*zk.CreateRequest).Flags == zk.FlagEphemeralSequential {
			p = numbering
		}
		switch known, there := a.nodes[path]; {
		case !there || p == numbering:
			d.fresh = append(d.fresh, path)
			a.put(path, p)
		case known.progress == doubtful:
			a.nodes[path] = entry{progress: creating}
		}
	}

	room := 0
	for _, path := range d.gone {
		if key, p := a.key(path); key != "" {
			room += size(key, p)
		}
	}
	a.fly(d.made, 1)
	if a.used > before && a.used-room > maxEphemeral {
		a.fly(d.made, -1)
		for _, path := range d.fresh {
			a.drop(path)
		}
		return nil, fmt.Errorf("%w: its ephemeral nodes take %d bytes, and %d are the limit", ErrSessionFull, a.used, maxEphemeral)
	}
	return &d, nil
}

// end notes what became of the request, and returns its error. names are the paths that the server
// has given to the nodes, by the number of the operation.
func (d *draft) end(err error, names ...string) error {
	if d == nil {
		return err
	}
	d.account.mu.Lock()
	defer d.account.mu.Unlock()
	d.account.fly(d.made, -1)
	switch {
	case err == nil:
		for i, path := range d.made {
			d.account.drop(path)
			d.account.put(names[i], created)
		}
		for _, path := range d.gone {
			d.account.drop(path)
		}
	case conn.OutcomeOf(err) == conn.Unknown:
		d.doubt()
		return &pendingError{err, d}
	default:
		d.undo(created, doubtful)
		d.doubt()
	}
	return err
}

// undo drops what the request has entered, but for what another request has made of it since. The
// caller holds the account's mu.
func (d *draft) undo(since ...progress) {
	for _, path := range d.fresh {
		if e, there := d.account.nodes[path]; there && !slices.Contains(since, e.progress) {
			d.account.drop(path)
		}
	}
}

// doubt notes that the paths which the request still has in the account are not being created by it
// any more. The caller holds the account's mu.
func (d *draft) doubt() {
	for _, path := range d.made {
		if e, there := d.account.nodes[path]; there && e.progress == creating {
			d.account.nodes[path] = entry{progress: doubtful}
		}
	}
}

// settle replaces what is known about an absolute path by the nodes that there are, unless a request
// has changed it.
func (a *account) settle(path string, before entry, made []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.nodes[path] != before {
		return
	}
	for range max(before.creates, 1) {
		a.drop(path)
	}
	for _, node := range made {
		a.put(node, created)
	}
}

// A pendingError is the error of a request that may have been executed.
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
		p.draft.undo(created)
		return
	}
	for _, path := range p.draft.gone {
		a.drop(path)
	}
}

// gone notes that there is no node at an absolute path.
func (a *account) gone(path string) {
	if a != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.drop(path)
	}
}

// found notes the number of a node that was created, whose path before that is prefix.
func (a *account) found(prefix, path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(prefix)
	a.put(path, created)
}

// The caller of those below holds mu.

func (a *account) put(path string, p progress) {
	if a.nodes == nil {
		a.nodes = make(map[string]entry)
	}
	e, there := a.nodes[path]
	if there && p != numbering {
		return
	}
	e.progress = p
	if p == numbering {
		e.creates++
	}
	a.nodes[path] = e
	a.used += size(path, p)
}

func (a *account) drop(path string) {
	key, p := a.key(path)
	if key == "" {
		return
	}
	a.used -= size(key, p)
	if e := a.nodes[key]; e.creates > 1 {
		e.creates--
		a.nodes[key] = e
	} else {
		delete(a.nodes, key)
	}
}

// fly notes how many more creates of these paths are being executed, if they lack their numbers.
func (a *account) fly(paths map[int]string, more int) {
	for _, path := range paths {
		if e := a.nodes[path]; e.progress == numbering {
			e.flying += more
			a.nodes[path] = e
		}
	}
}

// key returns the path under which a node is in the account, or nothing. If the answer to its create
// was lost, that has no number.
func (a *account) key(path string) (key string, p progress) {
	if e, there := a.nodes[path]; there {
		return path, e.progress
	}
	if n := len(path) - sequenceDigits; n > 0 && a.nodes[path[:n]].progress == numbering {
		return path[:n], numbering
	}
	return "", created
}

// size is how many bytes a node takes: its path, and the length of that.
func size(path string, p progress) int {
	if p == numbering {
		return len(path) + sequenceDigits + 4
	}
	return len(path) + 4
}

// sequenceDigits is how many digits a server appends to the name of a sequential node.
const sequenceDigits = 10
