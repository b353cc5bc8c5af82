package main

import (
	"io"
	"time"
)

// A noteQueue writes to a stream that can block or be closed. Its callers never wait, because they
// renew trust, forward signals and give locks back. If the queue is full, a note is dropped.
type noteQueue struct {
	queue chan []byte
	done  chan struct{}
}

const (
	maxNotes  = 100         // the size of the queue
	lastNotes = time.Second // how long the end of zkr waits for the queue
)

func newNotes(out io.Writer) *noteQueue {
	n := &noteQueue{make(chan []byte, maxNotes), make(chan struct{})}
	go func() {
		defer close(n.done)
		for line := <-n.queue; line != nil; line = <-n.queue {
			out.Write(line) //nolint:errcheck // nobody reads it
		}
	}()
	return n
}

// Write never blocks and never fails.
func (n *noteQueue) Write(line []byte) (int, error) {
	select {
	case n.queue <- append([]byte(nil), line...):
	default:
	}
	return len(line), nil
}

// close returns once all notes are written, or after a second.
func (n *noteQueue) close() {
	go func() { n.queue <- nil }() // the last one has to wait if the queue is full
	select {
	case <-n.done:
	case <-time.After(lastNotes):
	}
}
