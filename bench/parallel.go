package main

import (
	"errors"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/must"
)

// inParallel runs workers and returns the sum of their counts. It fails if any of them does, once
// all have ended.
func inParallel(workers int, do func(worker int) (n int)) (sum int) {
	var err error
	var all sync.WaitGroup
	var mu sync.Mutex
	for worker := range workers {
		all.Go(func() {
			var n int
			failed := must.Try(func() { n = do(worker) })
			mu.Lock()
			defer mu.Unlock()
			sum += n
			err = errors.Join(err, failed)
		})
	}

	all.Wait()
	must.Succeed(err)
	return sum
}
