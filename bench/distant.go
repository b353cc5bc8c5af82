package main

import (
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// dialer returns a contestant's dialer. Servers seem as far away as the options say.
func (e *env) dialer(t *traffic) zk.Dialer {
	if e.latency <= 0 {
		return t.dial
	}
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		c, err := t.dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return newDistantConn(c, e.latency/2), nil
	}
}

// A distantConn is a connection that delays everything, in each direction.
type distantConn struct {
	net.Conn
	out, in chan packet
	closing sync.Once
	closed  chan struct{}
	rest    []byte // of the packet being read
}

type packet struct {
	due  time.Time
	data []byte
	err  error
}

func newDistantConn(c net.Conn, delay time.Duration) *distantConn {
	const underWay = 1 << 12
	d := &distantConn{Conn: c, out: make(chan packet, underWay), in: make(chan packet, underWay), closed: make(chan struct{})}
	go d.receive(delay)
	go d.send(delay)
	return d
}

func (d *distantConn) receive(delay time.Duration) {
	defer close(d.in)
	for {
		b := make([]byte, 4096)
		n, err := d.Conn.Read(b)
		select {
		case d.in <- packet{time.Now().Add(delay), b[:n], err}:
		case <-d.closed:
			return
		}
		if err != nil {
			return
		}
	}
}

func (d *distantConn) send(delay time.Duration) {
	for {
		select {
		case p := <-d.out:
			time.Sleep(time.Until(p.due.Add(delay)))
			if _, err := d.Conn.Write(p.data); err != nil {
				d.Conn.Close()
				return
			}
		case <-d.closed:
			return
		}
	}
}

func (d *distantConn) Read(b []byte) (int, error) {
	if len(d.rest) == 0 {
		p, more := <-d.in
		if !more {
			return 0, net.ErrClosed
		}
		time.Sleep(time.Until(p.due))
		if p.err != nil {
			return copy(b, p.data), p.err
		}
		d.rest = p.data
	}

	n := copy(b, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

func (d *distantConn) Write(b []byte) (int, error) {
	select {
	case d.out <- packet{due: time.Now(), data: append([]byte(nil), b...)}:
		return len(b), nil
	case <-d.closed:
		return 0, net.ErrClosed
	}
}

func (d *distantConn) Close() error {
	d.closing.Do(func() { close(d.closed) })
	return d.Conn.Close()
}
