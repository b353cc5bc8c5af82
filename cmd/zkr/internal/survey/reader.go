package survey

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// readers is the number of requests that a survey sends at a time.
const readers = 16

// A reader reads under one session. It limits the number of requests at a time.
type reader struct {
	session *recipe.Session
	memory  *memory // nil without a memory
	slots   chan struct{}
}

// get reads a node. If the node can't be read, it returns a Stat without data (see statOf). If the
// node is gone, it returns neither.
func (r *reader) get(ctx context.Context, path string) (data []byte, stat *zk.Stat, err error) {
	r.slots <- struct{}{}
	defer func() { <-r.slots }()

	if r.memory != nil {
		return r.memory.get(ctx, r.session, path)
	}

	// Even if the data can't be read, the Stat often can.
	data, stat, err = r.session.Get(ctx, path)
	if errors.Is(err, zk.ErrNoAuth) {
		stat, err = statOf(ctx, r.session, path)
	}

	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil, nil
	}
	return data, stat, err
}

// children lists a node. The names are sorted. If the node is gone, it returns no Stat. If the node
// can't be listed, it returns a Stat and [zk.ErrNoAuth].
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

// nodes reads children and leaves out children that are gone.
func (r *reader) nodes(ctx context.Context, path string, names []name) ([]node, error) {
	found, errs := make([]node, len(names)), make([]error, len(names))
	parallel(len(names), func(i int) {
		found[i].name = names[i]
		found[i].data, found[i].stat, errs[i] = r.get(ctx, join(path, names[i].node))
	})
	found = slices.DeleteFunc(found, func(n node) bool { return n.stat == nil })
	return found, cmp.Or(errs...)
}

// named reads the children of a directory below a place in order of their creation. It leaves out
// children that parse doesn't know.
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

// parallel calls do for 0 to n-1 in a few goroutines and waits for them.
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
