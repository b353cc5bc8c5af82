package recipestest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Time for what a recipe finishes in the background when a test ends. A session
// of the default server that died in a broken network is over by then, too.
const leftoverPatience = 15 * time.Second

// How long an unreachable server is tried at a test's end.
const reachPatience = 15 * time.Second

// Root returns a fresh path for tb, named after it. Nothing is created:
// recipes create the parents they need. All calls return different paths.
//
// When tb ends, and while its clients are still open, no ephemeral node may be
// left below: an orphan in a living session blocks others. Clean-up in the
// background is waited for. Whatever else is below is removed.
func (s *Server) Root(tb testing.TB) string {
	tb.Helper()
	root := "/" + plain(tb.Name()) + "-" + strings.ToLower(rand.Text()[:8])
	t := s.tenantOf(tb)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.roots = append(t.roots, root)
	return root
}

// plain makes a node's name of a test's name.
func plain(name string) string {
	name = strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '.' {
			return r
		}
		return '-'
	}, name)
	return name[:min(len(name), 100)]
}

// checkLeftovers has tb fail if there is an ephemeral node below roots that
// does not go away. It returns false if the server cannot be reached.
func (s *Server) checkLeftovers(tb testing.TB, roots []string) bool {
	tb.Helper()
	if len(roots) == 0 {
		return true
	}
	patience, least := leftoverPatience, looks
	report := tb.Errorf
	if tb.Failed() {
		patience, least, report = 0, 1, tb.Logf // it may have been stopped half-way; what is left may still say why
	}
	session, err := s.connect(reachPatience)
	if err != nil {
		report("recipestest: cannot look for leftover nodes: %v", err)
		return false
	}
	defer session.close()
	deadline := time.Now().Add(patience)
	for look := 1; ; look++ {
		left, err := session.ephemerals(roots)
		if err != nil {
			report("recipestest: cannot look for leftover nodes: %v", err)
			return false
		}
		if len(left) == 0 {
			return true
		}
		if look >= least && !time.Now().Before(deadline) {
			for _, n := range left {
				report("recipestest: left behind: %s of session %#x, data %.100q", n.path, n.owner, session.data(n.path))
			}
			return true
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// removeRoots removes everything below roots, and them.
func (s *Server) removeRoots(tb testing.TB, roots []string) {
	tb.Helper()
	if len(roots) == 0 {
		return
	}
	session, err := s.connect(reachPatience)
	if err == nil {
		defer session.close()
		err = session.remove(roots)
	}
	if err != nil && !errors.Is(err, errNoAuth) {
		tb.Logf("recipestest: cannot remove what the test has left: %v", err)
	}
}

type node struct {
	path  string
	owner int64 // the session of an ephemeral node, else 0
}

// ephemerals returns the ephemeral nodes below roots.
func (w *wire) ephemerals(roots []string) ([]node, error) {
	var left []node
	err := w.walk(roots, func(n node) {
		if n.owner != 0 {
			left = append(left, n)
		}
	})
	return left, err
}

// remove deletes the trees at roots, leaves first.
func (w *wire) remove(roots []string) error {
	var deletes []call
	if err := w.walk(roots, func(n node) {
		deletes = append(deletes, call{OpDelete, deleteRequest(w.chroot + n.path)})
	}); err != nil {
		return err
	}
	for i, j := 0, len(deletes)-1; i < j; i, j = i+1, j-1 {
		deletes[i], deletes[j] = deletes[j], deletes[i]
	}
	var failed error
	err := w.do(deletes, func(i int, _ []byte, err error) {
		if err != nil && !errors.Is(err, errNoNode) {
			failed = fmt.Errorf("delete: %w", err)
		}
	})
	return errors.Join(err, failed)
}

// walk visits every node of the trees at roots, parents before children, as far
// as it can read them.
func (w *wire) walk(roots []string, visit func(node)) error {
	for level := roots; len(level) > 0; {
		var children, hidden []string
		list := make([]call, len(level))
		for i, path := range level {
			list[i] = call{opGetChildren2, readRequest(w.chroot + path)}
		}
		err := w.do(list, func(i int, body []byte, err error) {
			switch {
			case errors.Is(err, errNoAuth):
				hidden = append(hidden, level[i])
			case err == nil:
				names, stat := parseChildren(body)
				visit(node{level[i], ownerIn(stat)})
				for _, name := range names {
					children = append(children, level[i]+"/"+name)
				}
			}
		})
		if err != nil {
			return err
		}
		stat := make([]call, len(hidden)) // which needs no permission
		for i, path := range hidden {
			stat[i] = call{OpExists, readRequest(w.chroot + path)}
		}
		err = w.do(stat, func(i int, stat []byte, err error) {
			if err == nil {
				visit(node{hidden[i], ownerIn(stat)})
			}
		})
		if err != nil {
			return err
		}
		level = children
	}
	return nil
}
