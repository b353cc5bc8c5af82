package main

import (
	"io"
	"net"
	"sync"
)

// A network is one client's way to all servers. It can be stopped: then connections stay open, and
// nothing arrives in either direction (not even a hang-up). Bytes that were sent meanwhile arrive
// once the network runs again.
type network struct {
	relays sync.WaitGroup

	mu      sync.Mutex    // protects the fields below
	running chan struct{} // closed while the network runs
	conns   []net.Conn
	closed  bool
}

func newNetwork() *network {
	n := &network{running: make(chan struct{})}
	close(n.running)
	return n
}

// stop stops the network. It must be running.
func (n *network) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running = make(chan struct{})
}

// run lets a stopped network run again. If it runs already, run does nothing.
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

// relay passes on the bytes that it reads, and then the end of the stream.
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

// close cuts all connections, and returns once no bytes are relayed any more.
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
