package sim

import "sync"

// work counts what is still to be done. It begins with the set-up of the world as its only part,
// and is over for good when all parts have ended.
type work struct {
	mu   sync.Mutex // protects left
	left int
	done chan struct{} // closed when all is done
}

func newWork() *work { return &work{left: 1, done: make(chan struct{})} }

// begin adds a part. It returns false if all is done.
func (k *work) begin() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left == 0 {
		return false
	}
	k.left++
	return true
}

// end ends a part.
func (k *work) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left--; k.left == 0 {
		close(k.done)
	}
}
