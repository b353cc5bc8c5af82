package main

import (
	"bufio"
	"fmt"
	"net"
	"sync"
)

// A store is the resource that holders write to. For each recipe it remembers the highest token it
// has seen, and refuses lower tokens. It runs in the parent, and listens on a socket.
type store struct {
	listener net.Listener
	now      func() Stamp

	mu      sync.Mutex // protects the fields below
	highest map[string]int64
	writes  []Write
}

func newStore(socket string, now func() Stamp) (*store, error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	s := &store{listener: l, now: now, highest: make(map[string]int64)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(c)
		}
	}()
	return s, nil
}

func (s *store) serve(c net.Conn) {
	defer c.Close()
	for lines := bufio.NewScanner(c); lines.Scan(); {
		var w Write
		if _, err := fmt.Sscan(lines.Text(), &w.Recipe, &w.Client, &w.Life, &w.ID, &w.Token); err != nil {
			return
		}
		answer := "refused\n"
		if s.write(w) {
			answer = "accepted\n"
		}
		if _, err := c.Write([]byte(answer)); err != nil {
			return
		}
	}
}

func (s *store) write(w Write) (accepted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.At, w.Highest = s.now(), s.highest[w.Recipe]
	w.Accepted = w.Token >= w.Highest
	s.highest[w.Recipe] = max(w.Highest, w.Token)
	s.writes = append(s.writes, w)
	return w.Accepted
}

// take returns the writes since the last call.
func (s *store) take() []Write {
	s.mu.Lock()
	defer s.mu.Unlock()
	writes := s.writes
	s.writes = nil
	return writes
}

func (s *store) close() { s.listener.Close() }

// A storeClient is a worker's connection with the store.
type storeClient struct {
	mu     sync.Mutex // held during a request
	conn   net.Conn
	answer *bufio.Scanner
}

func dialStore(socket string) (*storeClient, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	return &storeClient{conn: c, answer: bufio.NewScanner(c)}, nil
}

// write writes for the holder in o, and reports whether the store accepted it.
func (s *storeClient) write(o *Op) (accepted bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := fmt.Fprintln(s.conn, o.Recipe, o.Client, o.Life, o.ID, o.Token); err != nil {
		return false, err
	}
	if !s.answer.Scan() {
		return false, fmt.Errorf("the store has hung up: %w", s.answer.Err())
	}
	return s.answer.Text() == "accepted", nil
}
