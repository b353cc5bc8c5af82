package program

import (
	"strings"
	"sync"
)

// A Tail keeps the last 64 KB that a process writes (in which the stacks of its goroutines fit).
type Tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *Tail) Write(p []byte) (int, error) {
	const most = 64 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-most):]
	return len(p), nil
}

func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
