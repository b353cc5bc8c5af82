package protocol

import (
	"bufio"
	"context"
	"encoding/binary"
	"net"
	"time"

	"github.com/go-zookeeper/zk"
)

// A route leads to the servers, one address after the other. Each round begins with the names of the connect string,
// resolved anew, and has every address of every name: which of them accept connections and then do not serve is not
// known before. It is not safe for concurrent use.
type route struct {
	client *sessions
	names  []string
	round  []string // what is left of it
	size   int
	known  map[string][]string // what each name was last resolved to, for when names cannot be
}

func newRoute(c *sessions) *route {
	return &route{client: c, names: shuffled(c.servers), size: len(c.servers), known: make(map[string][]string)}
}

// len returns how many addresses a round has.
func (r *route) len() int { return r.size }

// next returns the next address. It blocks while names are resolved, timeout at most.
func (r *route) next(ctx context.Context, timeout time.Duration) string {
	if len(r.round) == 0 {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		for _, name := range r.names {
			r.round = append(r.round, r.addresses(ctx, name)...)
		}
		r.size = len(r.round)
	}
	address := r.round[0]
	r.round = r.round[1:]
	return address
}

// addresses returns the addresses of a server. A dialer of the user's gets the name itself: it may need that, to
// check a certificate for example. Where names cannot be resolved for a while, servers are sought where they were.
func (r *route) addresses(ctx context.Context, server string) []string {
	host, port, err := net.SplitHostPort(server)
	if err != nil || r.client.lookup == nil || net.ParseIP(host) != nil {
		return []string{server}
	}
	hosts, err := r.client.lookup(ctx, host)
	if err != nil || len(hosts) == 0 {
		if known := r.known[server]; known != nil {
			return known
		}
		return []string{server} // to dial it fails with an error that says why
	}
	for i, host := range hosts {
		hosts[i] = net.JoinHostPort(host, port)
	}
	r.known[server] = hosts
	return hosts
}

// dialler is a session's way to the servers: zk.Conn asks it for the next address as a [zk.HostProvider], and for
// a connection as a [zk.Dialer]. It waits longer after each round that failed, and leads nowhere any more once the
// session is over.
type dialler struct {
	session *session
	route   *route
}

func (d *dialler) Init([]string) error { return nil }
func (d *dialler) Len() int            { return d.route.len() }
func (d *dialler) Connected()          {}

// Next never tells zk.Conn that all servers were tried: it would sleep for a second then.
func (d *dialler) Next() (server string, retryStart bool) {
	s := d.session
	s.mu.Lock()
	timeout := s.client.timeout
	if s.id != 0 {
		timeout = s.trust.timeout
	}
	s.mu.Unlock()
	return d.route.next(s.life, share(timeout, silenceShare)), false
}

func (d *dialler) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	s := d.session
	s.mu.Lock()
	failures := s.failures
	known := s.id != 0
	granted, welcomed := s.trust.timeout, s.welcomed[0]
	s.mu.Unlock()

	// A session that is to be resumed has to find a server that works before trust runs out; a new one has
	// more time, which servers under load may need.
	pace, patience := s.client.timeout, max(s.client.timeout/3, time.Second)
	if known {
		pace, patience = granted, share(granted, silenceShare)
		timeout = min(timeout, patience)
	}
	// Servers that welcome us and hang up are not dialled without a pause either, though they answer. The pause is short,
	// as it may be a blip after a blip, and there is none after the first.
	pause := max(redialAfter(failures, d.route.len(), pace), time.Until(welcomed.Add(share(granted, redialShare))))
	select {
	case <-time.After(pause):
	case <-s.Done():
	}
	if s.life.Err() != nil {
		return s.farewell(), nil
	}
	c, err := s.client.dial(s.life, network, address, timeout)
	if err == nil {
		var w *wire
		if w, err = newWire(s, c, patience); err == nil {
			return w, nil
		}
	}
	s.disconnected(nil, err)
	return nil, err
}

// dialNet is the default way to dial.
func dialNet(ctx context.Context, network, address string, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	return d.DialContext(ctx, network, address)
}

// dialWith dials with d, which knows nothing of ctx.
func dialWith(ctx context.Context, d zk.Dialer, network, address string, timeout time.Duration) (net.Conn, error) {
	type result struct {
		net.Conn
		error
	}
	dialled := make(chan result)
	go func() {
		c, err := d(network, address, timeout)
		select {
		case dialled <- result{c, err}:
		case <-ctx.Done():
			if err == nil {
				c.Close()
			}
		}
	}()
	select {
	case r := <-dialled:
		return r.Conn, r.error
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// farewell is a connection to nobody, for the zk.Conn of a session that is over. It ends only on an answer to its
// request to close the session, and has a second's patience for that, or more. Here it is told what it wants to
// hear, and nothing else that it has queued goes anywhere.
func (s *session) farewell() net.Conn {
	s.mu.Lock()
	id, timeout := s.id, s.client.timeout
	s.mu.Unlock()
	here, there := net.Pipe()
	go func() {
		defer here.Close()
		in := bufio.NewReader(here)
		if _, err := readFrame(in); err != nil {
			return
		}
		welcome := binary.BigEndian.AppendUint32(nil, 0) // protocol version
		welcome = binary.BigEndian.AppendUint32(welcome, uint32(timeout.Milliseconds()))
		welcome = binary.BigEndian.AppendUint64(welcome, uint64(max(id, 1)))
		welcome = append(welcome, 0, 0, 0, 0) // no password
		if writeFrame(here, welcome) != nil {
			return
		}
		s.parting.Do(func() { close(s.parted) })
		for { // until zk.Conn hangs up: a write that fails could make it wait for ever
			request, err := readFrame(in)
			if err != nil {
				return
			}
			if len(request) >= 8 && int32(binary.BigEndian.Uint32(request[4:])) == opCloseSession {
				writeFrame(here, append(request[:4:4], make([]byte, 12)...))
			}
		}
	}()
	return there
}

var _ zk.HostProvider = (*dialler)(nil)
