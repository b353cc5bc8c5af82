package conn

import (
	"sync"
	"sync/atomic"
)

// creations are the own nodes that are being created, by their paths without the numbers. The
// connection notes the zxid of the answer for each. It is that of the transaction: a server answers
// a write with the zxid up to which it has executed transactions, before it executes the next one.
// It is safe for concurrent use.
type creations struct {
	mu    sync.Mutex // protects zxids
	zxids map[string]*atomic.Int64
}

func (c *creations) begin(path string, zxid *atomic.Int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.zxids == nil {
		c.zxids = make(map[string]*atomic.Int64)
	}
	c.zxids[path] = zxid
}

func (c *creations) end(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.zxids, path)
}

// of returns where to note the zxid of a create of this path, or nil.
func (c *creations) of(path string) *atomic.Int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.zxids[path]
}
