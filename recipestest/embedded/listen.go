package embedded

import (
	"fmt"
	"net"
	"strconv"

	"github.com/zkrecipes/zkrecipes/recipestest/internal/pipe"
)

// Listen gives the follower an address of its own, as each member of an ensemble has one, and
// returns it as host:port. It is a free port of the loopback interface, or for a server in memory
// an address that [Server.Dial] knows. A client that is given several addresses goes on at another
// one when its server stops:
//
//	first, err := server.Follower().Listen()
//	second, err := server.Follower().Listen()
//	client, err := protocol.Connect(ctx, first+","+second)
//
// The follower listens there until it or the server is closed. A second call returns the same
// address. Listen fails if the follower is closed, or if there is no free port.
func (f *Follower) Listen() (address string, err error) {
	s := f.srv
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.closed || s.closed {
		return "", fmt.Errorf("embedded: listen: %w", net.ErrClosed)
	}

	if f.address != "" {
		return f.address, nil
	}

	if s.cfg.InMemory {
		// No port is opened. Dial looks the address up in s.listening.
		host, port, _ := net.SplitHostPort(pipe.Address) // it's a constant
		first, _ := strconv.Atoi(port)
		f.address = net.JoinHostPort(host, strconv.Itoa(first+1+len(s.listening)))
	} else {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", fmt.Errorf("embedded: %w", err)
		}
		f.address = l.Addr().String()
		if f.stopped || s.stopped {
			l.Close() // Resume opens one at the same address
		} else {
			f.listener = l
			s.listen(l, f)
		}
	}

	s.listening[f.address] = f
	return f.address, nil
}

// Stop makes the follower unreachable until [Follower.Resume]: its connections are cut, and new
// connections are refused. It goes on following its leader, and the other servers stay reachable.
// So a client with several addresses goes on at another server.
func (f *Follower) Stop() {
	f.srv.mu.Lock()
	defer f.srv.mu.Unlock()
	f.stopped = true
	f.closeListener()
	f.dropAll()
}

// Resume makes a follower reachable again after [Follower.Stop], at the same address. It fails if
// the follower is closed, or if another listener has taken the address. Without Stop it does
// nothing.
func (f *Follower) Resume() error {
	f.srv.mu.Lock()
	defer f.srv.mu.Unlock()
	if f.closed || f.srv.closed {
		return fmt.Errorf("embedded: %w", net.ErrClosed)
	}
	f.stopped = false
	return f.openListener()
}

// openListener listens at the follower's address, if it has one and should be reachable. The caller
// holds the server's lock.
func (f *Follower) openListener() error {
	s := f.srv
	if f.address == "" || f.closed || f.stopped || s.stopped || s.cfg.InMemory || f.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", f.address)
	if err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	f.listener = l
	s.listen(l, f)
	return nil
}

// closeListener closes the follower's listener. The caller holds the server's lock.
func (f *Follower) closeListener() {
	if f.listener != nil {
		f.listener.Close()
		f.listener = nil
	}
}
