package main

import (
	"io"
	"net"
	"sync"
)

// A network is what one client reaches all servers through. It can be stopped: connections stay
// open then, and nothing arrives in either direction, not even a hang-up. What was sent meanwhile
// arrives once the network runs again.
type network struct {
	relays sync.WaitGroup

	mu      sync.Mutex    // guards what follows
	running chan struct{} // closed while the network runs
	conns   []net.Conn
	closed  bool
}

func newNetwork() *network {
	n := &network{running: make(chan struct{})}
	close(n.running)
	return n
}

// stop stops the network, which must be running.
func (n *network) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running = make(chan struct{})
}

// run lets a stopped network run again, and does nothing if it runs.
func (n *network) run() {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.running:
	default:
		close(n.running)
	}
}

// wait blocks while the network is stopped.
func (n *network) wait() {
	n.mu.Lock()
	running := n.running
	n.mu.Unlock()
	<-running
}

// dial returns a connection over this network to a server.
func (n *network) dial(server func() (net.Conn, error)) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, net.ErrClosed
	}

	far, err := server()
	if err != nil {
		return nil, err
	}
	client, near := net.Pipe()
	n.conns = append(n.conns, near, far)
	n.relays.Go(func() { n.relay(near, far) })
	n.relays.Go(func() { n.relay(far, near) })
	return client, nil
}

// relay passes on what it reads, and the end of it.
func (n *network) relay(to io.WriteCloser, from io.ReadCloser) {
	defer from.Close()
	defer to.Close()

	buf := make([]byte, 16<<10)
	for {
		read, err := from.Read(buf)
		n.wait()
		if read > 0 { // net.Pipe blocks for less
			if _, err := to.Write(buf[:read]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// close cuts all connections, and returns when nothing is relayed any more.
func (n *network) close() {
	n.run()
	n.mu.Lock()
	n.closed = true
	for _, c := range n.conns {
		c.Close()
	}
	n.mu.Unlock()
	n.relays.Wait()
}
