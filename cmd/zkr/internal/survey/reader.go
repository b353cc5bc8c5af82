package survey

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// readers is how many requests a survey has under way at a time.
const readers = 16

// A node is a child as it was read.
type node struct {
	name
	data []byte
	stat *zk.Stat
}

// A reader reads under one session, with a limited number of requests at a time.
type reader struct {
	session *recipe.Session
	memory  *memory // nil if nothing is remembered
	slots   chan struct{}
}

// get reads a node. One that may not be read has a Stat and no data, and one that is gone neither.
// See statOf for the Stat.
func (r *reader) get(ctx context.Context, path string) (data []byte, stat *zk.Stat, err error) {
	r.slots <- struct{}{}
	defer func() { <-r.slots }()

	if r.memory != nil {
		return r.memory.get(ctx, r.session, path)
	}
	data, stat, err = r.session.Get(ctx, path)
	if errors.Is(err, zk.ErrNoAuth) {
		stat, err = statOf(ctx, r.session, path)
	}
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil, nil
	}
	return data, stat, err
}

// children lists a node. The names are sorted. It returns no Stat if the node is gone, and
// [zk.ErrNoAuth] with a Stat if the node may not be listed.
func (r *reader) children(ctx context.Context, path string) (names []string, stat *zk.Stat, err error) {
	r.slots <- struct{}{}
	defer func() { <-r.slots }()

	if r.memory != nil {
		names, stat, err := r.memory.children(ctx, r.session, path)
		return slices.Clone(names), stat, err
	}

	names, stat, err = r.session.Children(ctx, path)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, nil, nil
	case errors.Is(err, zk.ErrNoAuth):
		stat, failed := statOf(ctx, r.session, path)
		return nil, stat, cmp.Or(failed, err)
	}

	slices.Sort(names)
	return names, stat, err
}

// nodes reads children, and leaves out those that are gone.
func (r *reader) nodes(ctx context.Context, path string, names []name) ([]node, error) {
	found, errs := make([]node, len(names)), make([]error, len(names))
	parallel(len(names), func(i int) {
		found[i].name = names[i]
		found[i].data, found[i].stat, errs[i] = r.get(ctx, join(path, names[i].node))
	})
	found = slices.DeleteFunc(found, func(n node) bool { return n.stat == nil })
	return found, cmp.Or(errs...)
}

// named reads those children of a directory below a place whose names parse knows, in order of their
// creation.
func (r *reader) named(ctx context.Context, p *Place, dir string, parse func(child string) (name, bool)) ([]node, error) {
	children, _, err := r.children(ctx, join(p.Path, dir))
	if err != nil {
		return nil, err
	}
	var names []name
	for _, child := range children {
		if n, ok := parse(child); ok {
			n.node = dir + "/" + child
			names = append(names, n)
		}
	}
	nodes, err := r.nodes(ctx, p.Path, names)
	slices.SortStableFunc(nodes, func(a, b node) int {
		return cmp.Or(cmp.Compare(a.stat.Czxid, b.stat.Czxid), a.compare(b.name))
	})
	return nodes, err
}

// parallel calls do for 0 to n-1 in a few goroutines, and waits.
func parallel(n int, do func(i int)) {
	indexes := make(chan int)
	var wg sync.WaitGroup
	for range min(n, readers) {
		wg.Go(func() {
			for i := range indexes {
				do(i)
			}
		})
	}

	for i := range n {
		indexes <- i
	}

	close(indexes)
	wg.Wait()
}

// join returns the path of a child.
func join(path, child string) string {
	if path == "/" {
		return "/" + child
	}
	return path + "/" + child
}

// created returns when a node was created, by the server's clock.
func created(stat *zk.Stat) time.Time {
	if isHidden(stat) {
		return time.Time{}
	}
	return time.UnixMilli(stat.Ctime).UTC()
}

// statOf returns the Stat of a node that may not be read, or nil if there is no node. ZooKeeper
// 3.8.4, 3.9.2 and later hide it, and then it is all zero.
func statOf(ctx context.Context, s *recipe.Session, path string) (*zk.Stat, error) {
	stat, err := s.Exists(ctx, path)
	if errors.Is(err, zk.ErrNoAuth) {
		return new(zk.Stat), nil
	}
	return stat, err
}

// isHidden reports whether there is a node of which nothing is known but its name.
func isHidden(stat *zk.Stat) bool { return stat.Czxid == 0 }

// isEphemeral reports whether a node ends with a session. Containers and TTL nodes have no owner in
// their Stat.
func isEphemeral(stat *zk.Stat) bool { return stat.EphemeralOwner != 0 }
