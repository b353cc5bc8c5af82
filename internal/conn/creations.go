package conn

import (
	"sync"
	"sync/atomic"
)

// creations are our own nodes that are being created, by path (without the sequence number). The
// connection stores the zxid of each answer. That is the transaction which created the node: a
// server answers a write with the zxid up to which it has executed transactions, before it executes
// the next transaction. It is safe for concurrent use.
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

// of returns where to store the zxid of a create at this path, or nil.
func (c *creations) of(path string) *atomic.Int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.zxids[path]
}
