package sim

import "sync"

// work counts the parts that still have to end. It begins with the set-up of the world as its only
// part. Once all parts have ended, no part can begin.
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
