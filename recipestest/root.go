package recipestest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// leftoverGrace is how long a recipe may take to clean up in the background after a test. (With the
// default server, a dead client's session expires earlier.)
const leftoverGrace = 15 * time.Second

// soundGrace is leftoverGrace for nodes of the test's own clients, if no fault has kept these
// clients from the server. Their clean-up takes only a few requests.
const (
	soundGrace = 1500 * time.Millisecond
	soundLooks = 2 * minLooks // a busy machine that has run these looks has run the clean-up too
)

// reachTimeout is how long the checks at the end of a test try to reach the server.
const reachTimeout = 15 * time.Second

// Root returns a new path for tb, named after it. It creates nothing: recipes create the parents
// they need. All calls return different paths.
//
// When tb ends, no ephemeral node may be left below the path while its clients are still open,
// because an orphan in a living session blocks other clients. The check waits for clean-up in the
// background: less than two seconds for nodes of this test's own clients (if the server is embedded
// and no test has used a [Link] or [Server.Embedded]), and fifteen seconds otherwise. An unused
// node of a lock that lingers is no orphan. All other nodes below the path are removed.
func (s *Server) Root(tb testing.TB) string {
	tb.Helper()
	root := "/" + nodeName(tb.Name()) + "-" + strings.ToLower(rand.Text()[:8])
	r := s.resourcesOf(tb)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.roots = append(r.roots, root)
	return root
}

// nodeName turns the name of a test into the name of a node.
func nodeName(name string) string {
	name = strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '.' {
			return r
		}
		return '-'
	}, name)
	return name[:min(len(name), 100)]
}

// checkLeftovers fails tb if an ephemeral node below roots stays. It returns false if the server
// can't be reached.
func (s *Server) checkLeftovers(tb testing.TB, roots []string, clients []io.Closer) bool {
	tb.Helper()
	if len(roots) == 0 {
		return true
	}

	own := s.soundSessions(clients)
	grace, least := leftoverGrace, minLooks
	report := tb.Errorf
	if tb.Failed() {
		grace, least, report = 0, 1, tb.Logf // the test may have been stopped half-way
	}

	session, err := s.connect(reachTimeout)
	if err != nil {
		report("recipestest: cannot look for leftover nodes: %v", err)
		return false
	}
	defer session.close()
	began := time.Now()
	whole, where := true, roots
	for look := 1; ; look++ {
		left, err := session.ephemerals(where)
		if err == nil && look == 1 {
			// A lingering lock gives its unused node back when a contender comes.
			err = session.contend(left)
		}
		if err != nil {
			report("recipestest: cannot look for leftover nodes: %v", err)
			return false
		}
		if len(left) == 0 && whole {
			return true
		}

		// Until the nodes found are gone, look only at them, because a tree can be large.
		if whole = len(left) == 0; whole {
			where = roots
			continue
		}
		where = make([]string, len(left))
		for i, n := range left {
			where[i] = n.path
		}

		// A node of the test's own sound client has less time.
		stay := look >= soundLooks && time.Since(began) >= soundGrace &&
			slices.ContainsFunc(left, func(n node) bool { return own[n.owner] })
		if stay || look >= least && time.Since(began) >= grace {
			for _, n := range left {
				report("recipestest: left behind: %s of session %#x, data %.100q", n.path, n.owner, session.data(n.path))
			}
			return true
		}
		time.Sleep(25 * time.Millisecond)
	}
}

// soundSessions returns the sessions of clients that had no faults.
func (s *Server) soundSessions(clients []io.Closer) map[int64]bool {
	s.mu.Lock()
	faulty := s.faulty
	s.mu.Unlock()
	if faulty || s.embedded == nil || s.spread != nil {
		return nil
	}

	own := make(map[int64]bool)
	// A sound client has its session already.
	now, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	for _, c := range clients {
		switch c := c.(type) {
		case *protocol.Client:
			if session, err := c.Session(now); err == nil {
				own[session.ID()] = true
			}
		case plainConn:
			own[c.SessionID()] = true
		}
	}

	return own
}

// removeRoots deletes roots and everything below them.
func (s *Server) removeRoots(tb testing.TB, roots []string) {
	tb.Helper()
	if len(roots) == 0 {
		return
	}

	session, err := s.connect(reachTimeout)
	if err == nil {
		defer session.close()
		err = session.remove(roots)
	}

	if err != nil && !errors.Is(err, errNoAuth) {
		tb.Logf("recipestest: cannot remove the nodes of the test: %v", err)
	}
}

type node struct {
	path  string
	owner int64 // the session of an ephemeral node, otherwise 0
}

// contend enters the line of each lock that lingers, so that an unused node is given back now.
func (r *rawSession) contend(left []node) error {
	var creates []call
	for _, n := range left {
		if c, ok := layout.AnyContender(path.Base(n.path)); ok && c.Kind == layout.Lingering {
			b := zkwire.AppendString(nil, r.absolute(path.Dir(n.path)+"/lock-"))
			b = zkwire.AppendBuffer(b, nil)
			b = zkwire.AppendInt32(zkwire.AppendInt32(b, 1), 31) // a list with one entry: all permissions
			b = zkwire.AppendString(zkwire.AppendString(b, "world"), "anyone")
			creates = append(creates, call{zkwire.OpCreate, zkwire.AppendInt32(b, zk.FlagEphemeralSequential)})
		}
	}
	return r.do(creates, func(int, []byte, error) {}) // nodes that may not be created will be reported
}

// ephemerals returns the ephemeral nodes of other sessions below roots.
func (r *rawSession) ephemerals(roots []string) ([]node, error) {
	var left []node
	err := r.walk(roots, func(n node) {
		if n.owner != 0 && n.owner != r.id {
			left = append(left, n)
		}
	})
	return left, err
}

// remove deletes the trees at roots, leaves first.
func (r *rawSession) remove(roots []string) error {
	var deletes []call
	if err := r.walk(roots, func(n node) {
		deletes = append(deletes, call{zkwire.OpDelete, deleteRequest(r.absolute(n.path))})
	}); err != nil {
		return err
	}

	slices.Reverse(deletes) // walk visits parents first
	var failed error
	err := r.do(deletes, func(i int, _ []byte, err error) {
		if err != nil && !errors.Is(err, errNoNode) {
			failed = fmt.Errorf("delete: %w", err)
		}
	})

	return errors.Join(err, failed)
}

// walk visits every node of the trees at roots, parents before children. It doesn't see nodes below
// a node that may not be read. (Since ZooKeeper 3.8.4 and 3.9.2, such a node has no owner either.)
func (r *rawSession) walk(roots []string, visit func(node)) error {
	for level := roots; len(level) > 0; {
		var children, hidden []string // hidden nodes may not be read

		// List the children of all nodes of this level at once.
		list := make([]call, len(level))
		for i, path := range level {
			list[i] = call{zkwire.OpGetChildren2, readRequest(r.absolute(path))}
		}
		err := r.do(list, func(i int, body []byte, err error) {
			switch {
			case errors.Is(err, errNoAuth):
				hidden = append(hidden, level[i])
			case err == nil:
				names, stat := parseChildren(body)
				visit(node{level[i], stat.EphemeralOwner})
				for _, name := range names {
					children = append(children, strings.TrimSuffix(level[i], "/")+"/"+name)
				}
			}
		})
		if err != nil {
			return err
		}
		// Look for the owners of nodes that may not be read.
		stat := make([]call, len(hidden))
		for i, path := range hidden {
			stat[i] = call{zkwire.OpExists, readRequest(r.absolute(path))}
		}
		err = r.do(stat, func(i int, stat []byte, err error) {
			switch {
			case err == nil:
				visit(node{hidden[i], statIn(stat).EphemeralOwner})
			case errors.Is(err, errNoAuth): // so the node exists
				visit(node{hidden[i], 0})
			}
		})
		if err != nil {
			return err
		}
		level = children
	}

	return nil
}
