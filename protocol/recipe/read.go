package recipe

import (
	"cmp"
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"
)

// readers is how many nodes [ReadAll] reads at the same time.
const readers = 32

// ReadAll calls read for each of many nodes (such as names), 32 at a time. It returns the results
// in the same order. If read returns [zk.ErrNoNode] (the node is gone by now), that's no error: the
// result that read returned with it counts. ReadAll blocks until all calls have returned. If calls
// fail, it returns the first of their errors and the results of the others.
func ReadAll[N, T any](nodes []N, read func(node N) (T, error)) ([]T, error) {
	all, errs := make([]T, len(nodes)), make([]error, len(nodes))
	slots := make(chan struct{}, readers)
	var reading sync.WaitGroup
	for i, node := range nodes {
		slots <- struct{}{}
		reading.Go(func() {
			defer func() { <-slots }()
			if all[i], errs[i] = read(node); errors.Is(errs[i], zk.ErrNoNode) {
				errs[i] = nil
			}
		})
	}
	reading.Wait()

	return all, cmp.Or(errs...)
}
