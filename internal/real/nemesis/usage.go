package main

import (
	"fmt"
	"os"
	"runtime"
)

// A usage is how much a process uses while it rests. At rest it holds nothing and waits for
// nothing, so after many rounds of faults it should use no more than after the first.
type usage struct {
	goroutines, files int
	heap              uint64 // bytes
}

// One more session (or connection) takes less than this for a while.
const (
	moreGoroutines = 20
	moreFiles      = 10
	moreHeap       = 16 << 20
)

func presentUsage() usage {
	// Count only live objects.
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/proc/self/fd") // empty on other systems
	return usage{runtime.NumGoroutine(), len(files), m.HeapAlloc}
}

// exceeds returns an error if u is too much for a process that first used first.
func (u usage) exceeds(first usage) error {
	if u.goroutines > first.goroutines+moreGoroutines || u.files > first.files+moreFiles || u.heap > 2*first.heap+moreHeap {
		return fmt.Errorf("uses %d goroutines, %d files and %d bytes at rest, and used %d, %d and %d after its first round",
			u.goroutines, u.files, u.heap, first.goroutines, first.files, first.heap)
	}
	return nil
}
