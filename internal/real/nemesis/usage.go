package main

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// A usage is what a process uses while it rests. It holds nothing then, and waits for nothing, so it
// should not use more after many rounds of faults than after the first.
type usage struct {
	goroutines, files int
	heap              uint64 // bytes
}

// These are above what one more session, or one more connection, takes for a while.
const (
	moreGoroutines = 20
	moreFiles      = 10
	moreHeap       = 16 << 20
)

func presentUsage() usage {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/proc/self/fd") // empty elsewhere
	return usage{runtime.NumGoroutine(), len(files), m.HeapAlloc}
}

// exceeds returns an error if u is more than a process should use that has used first.
func (u usage) exceeds(first usage) error {
	if u.goroutines > first.goroutines+moreGoroutines || u.files > first.files+moreFiles || u.heap > 2*first.heap+moreHeap {
		return fmt.Errorf("uses %d goroutines, %d files and %d bytes at rest, and used %d, %d and %d after its first round",
			u.goroutines, u.files, u.heap, first.goroutines, first.files, first.heap)
	}
	return nil
}

// sample compares what this process uses with its first rest. Work in the background may take a
// while to end.
func (w *worker) sample() (err error) {
	for range 50 {
		now := presentUsage()
		if w.first == (usage{}) {
			w.first = now
		}
		if err = now.exceeds(w.first); err == nil {
			return nil
		}
		w.sleep(100 * time.Millisecond)
	}
	return err
}
