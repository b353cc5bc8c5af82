package main

import (
	"io"
	"time"
)

// A noteQueue writes to a stream that may block or be closed, without its callers waiting: they renew
// trust, forward signals and give locks back. What finds no room in the queue is dropped.
type noteQueue struct {
	queue      chan []byte
	quit, done chan struct{}
}

const (
	maxNotes  = 100         // that wait to be written
	lastNotes = time.Second // for how long the end of zkr waits for them
)

func newNotes(out io.Writer) *noteQueue {
	n := &noteQueue{make(chan []byte, maxNotes), make(chan struct{}), make(chan struct{})}
	go func() {
		defer close(n.done)
		for quit := n.quit; quit != nil || len(n.queue) > 0; {
			select {
			case line := <-n.queue:
				out.Write(line) //nolint:errcheck // nobody reads
			case <-quit:
				quit = nil
			}
		}
	}()
	return n
}

// Write never blocks, and never fails.
func (n *noteQueue) Write(line []byte) (int, error) {
	select {
	case n.queue <- append([]byte(nil), line...):
	default:
	}
	return len(line), nil
}

// close returns once all is written, or after a while.
func (n *noteQueue) close() {
	close(n.quit)
	select {
	case <-n.done:
	case <-time.After(lastNotes):
	}
}
