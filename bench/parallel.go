package main

import (
	"errors"
	"sync"
)

// inParallel runs workers and returns the sum of their counts.
func inParallel(workers int, do func(worker int) (n int, err error)) (sum int, err error) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for worker := range workers {
		all.Go(func() {
			n, failed := do(worker)
			mu.Lock()
			defer mu.Unlock()
			sum += n
			err = errors.Join(err, failed)
		})
	}

	all.Wait()
	return sum, err
}
