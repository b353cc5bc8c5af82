package main

import (
	"net"
	"sync"
	"time"
)

// A proxy is the network between one client and one server. Bytes that a stall swallows are lost,
// so heal resets the connections.
type proxy struct {
	listener net.Listener
	dial     func(network, address string, timeout time.Duration) (net.Conn, error)

	mu                sync.Mutex // protects the fields below
	refuses           bool
	requests, replies bool // whether they are swallowed
	conns             map[net.Conn]bool
}

func newProxy(dial func(network, address string, timeout time.Duration) (net.Conn, error)) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, dial: dial, conns: make(map[net.Conn]bool)}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := p.dial("tcp", "", time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	refused := p.refuses
	if !refused {
		p.conns[client], p.conns[server] = true, true
	}

	p.mu.Unlock()
	if refused {
		return
	}

	var ways sync.WaitGroup
	ways.Go(func() { p.carry(server, client, &p.requests) })
	ways.Go(func() { p.carry(client, server, &p.replies) })
	ways.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, client)
	delete(p.conns, server)
}

// carry carries bytes until one side hangs up, and then hangs up the other.
func (p *proxy) carry(to, from net.Conn, swallowed *bool) {
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		lost := *swallowed
		p.mu.Unlock()
		if err != nil {
			return
		}
		if !lost {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
}

// used reports whether there is a connection.
func (p *proxy) used() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) > 0
}

func (p *proxy) cut() {
	p.mu.Lock()
	p.refuses = true
	p.mu.Unlock()
	p.reset()
}

func (p *proxy) stall(requests, replies bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests, p.replies = p.requests || requests, p.replies || replies
}

func (p *proxy) heal() {
	p.mu.Lock()
	gaps := p.requests || p.replies
	p.refuses, p.requests, p.replies = false, false, false
	p.mu.Unlock()
	if gaps {
		p.reset()
	}
}

func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) close() {
	p.listener.Close()
	p.reset()
}
