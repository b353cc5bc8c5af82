package protocol

import (
	"bufio"
	"context"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// A route yields the addresses of the servers, one after the other. Each round begins with the
// names of the connect string, resolved anew, and has every address of every name: some may accept
// connections and then not serve, which is not known before. It is not safe for concurrent use.
type route struct {
	client *sessions
	names  []string
	round  []string            // the addresses of this round that are left
	size   int                 // of a round
	known  map[string][]string // what each name was last resolved to, for when names cannot be resolved
}

func newRoute(c *sessions) *route {
	return &route{client: c, names: shuffled(c.servers), size: len(c.servers), known: make(map[string][]string)}
}

// len returns how many addresses a round has.
func (r *route) len() int { return r.size }

// next returns the next address. It blocks while names are resolved, until timeout is over or ctx
// ends.
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

// addresses returns the addresses of a server. While its name cannot be resolved, they are those of
// the last time. A dialer of the user's gets the name itself, which it may need to check a
// certificate.
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
		return []string{server} // dialling it fails with an error that says why
	}

	for i, host := range hosts {
		hosts[i] = net.JoinHostPort(host, port)
	}
	r.known[server] = hosts
	return hosts
}

// A dialler connects a session. zk.Conn asks it for the next address as a [zk.HostProvider], and
// for a connection as a [zk.Dialer]. It pauses for longer after each round that failed. Once the
// session is over, it connects to a stub.
type dialler struct {
	session *session
	route   *route
}

func (d *dialler) Init([]string) error { return nil }
func (d *dialler) Len() int            { return d.route.len() }
func (d *dialler) Connected()          {}

// Next never reports that all servers were tried, as zk.Conn would then sleep for a second.
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

// dial makes a connection. It blocks for the pause that is due, until d's session is over, and then
// while the network takes to connect.
func (d *dialler) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	s := d.session
	s.mu.Lock()
	failures := s.failures
	known := s.id != 0
	granted, accepted := s.trust.timeout, s.accepted[0]
	s.mu.Unlock()

	// A session that is to be resumed has to find a server that works before trust runs out. A new
	// session has more time, which servers under load may need.
	pace, limit := s.client.timeout, max(s.client.timeout/3, time.Second)
	if known {
		pace, limit = granted, share(granted, silenceShare)
		timeout = min(timeout, limit)
	}

	// Servers that accept a session and hang up are not dialled without a pause either, though they
	// answer. There is no pause after the first time, and a short one after the second, as one blip
	// may follow another.
	pause := max(redialAfter(failures, d.route.len(), pace), time.Until(accepted.Add(share(granted, redialShare))))
	sleep(pause, s.Done())
	if s.life.Err() != nil {
		return s.stub(), nil
	}

	c, err := s.client.dial(s.life, network, address, timeout)
	if err == nil {
		var w *connection
		if w, err = newConnection(s, c, limit); err == nil {
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

// dialWith dials with d, which takes no ctx. If ctx ends first, dialWith returns its cause, and a
// connection that d makes later is closed.
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

// stub returns a connection to no server, for the zk.Conn of a session that is over. zk.Conn ends
// only on an answer to its request to close the session, and waits a second or more for that. The
// stub gives that answer, and discards all other requests that zk.Conn has queued.
func (s *session) stub() net.Conn {
	s.mu.Lock()
	id, timeout := s.id, s.client.timeout
	s.mu.Unlock()

	here, there := net.Pipe()
	go func() {
		defer here.Close()
		in := bufio.NewReader(here)
		if _, err := zkwire.ReadFrame(in, sendBuffer); err != nil {
			return
		}
		granted := zkwire.AppendConnectResponse(nil, zkwire.ConnectResponse{
			Timeout: timeout, SessionID: max(id, 1), Password: []byte{},
		})
		if _, err := here.Write(granted); err != nil {
			return
		}
		s.stubbing.Do(func() { close(s.stubbed) })

		for { // until zk.Conn hangs up: a write that fails could make it wait for ever
			frame, err := zkwire.ReadFrame(in, sendBuffer)
			if err != nil {
				return
			}
			if head, ok := zkwire.ParseRequestHeader(frame); ok && head.Op == zkwire.OpCloseSession {
				answer := make([]byte, zkwire.ReplyBody)
				zkwire.PutReplyHeader(answer, zkwire.ReplyHeader{Xid: head.Xid})
				here.Write(answer)
			}
		}
	}()
	return there
}

var _ zk.HostProvider = (*dialler)(nil)
