package conn

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/trust"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// A dialler connects a session. zk.Conn asks it for the next address (as a [zk.HostProvider]) and
// for a connection (as a [zk.Dialer]). It pauses for longer after each failed round. Once the
// session has ended, it connects zk.Conn to a stub.
type dialler struct {
	conn    *Conn
	route   *route
	target  target // the target being dialled
	hurried time.Time

	drains  bool      // the next connection is a stub that fails what zk.Conn has queued
	drained time.Time // when there was such a stub last
}

func (d *dialler) Init([]string) error { return nil }
func (d *dialler) Len() int            { return d.route.len() }

// Connected notes that the handshake has succeeded.
func (d *dialler) Connected() {
	if !d.drains {
		d.route.worked(d.target)
	}
}

// Next pauses, then returns the next address.
//
// zk.Conn keeps a request that came as the connection broke until it is connected again. So that no
// call waits for the servers for ever, Next has a stub fail such requests twice in a session
// timeout. Next never says that no server is there: zk.Conn would then fail them too, but sleep for
// a second.
func (d *dialler) Next() (server string, none bool) {
	c := d.conn
	c.mu.Lock()
	failures, f := c.failures, search{at: c.host.Stake(), resumes: c.ID() != 0}
	f.slow = f.at == StakeNothing && failures > 0 && time.Since(c.failing) > patience
	granted, accepted, doubted := c.timeout, c.accepted[0], errors.Is(c.lastFail, errFormer)
	waiting := time.Since(trust.Later(c.failing, d.drained))
	c.mu.Unlock()

	d.drains = failures > 0 && f.resumes && waiting >= granted/2
	if d.drains {
		d.drained = time.Now()
		return "", false
	}
	if doubted {
		c.ensemble.addresses.doubt(d.target.server)
	}

	// A session that is to be resumed must find a working server before trust runs out.
	pace, most := c.ensemble.Timeout, lookupTimeout
	if f.resumes {
		pace, most = granted, trust.Silence.Of(granted)
	}

	// A server can accept a session and hang up, again and again. So there's a pause although it
	// answers: none after the first time (a blip), a short one after the second.
	pause := max(pauseAfter(failures, d.route.len(), pace, f), time.Until(accepted.Add(trust.Redial.Of(granted))))
	d.pause(pause, f.slow)
	d.target = d.route.next(c.life, most, f)
	return d.target.address, false
}

// pause sleeps before an attempt. The first caller in half a minute cuts a long pause short.
func (d *dialler) pause(pause time.Duration, slow bool) {
	if !slow || time.Since(d.hurried) < 30*time.Second {
		Sleep(pause, d.conn.life.Done())
		return
	}

	select {
	case <-time.After(max(pause, 1)): // see Sleep
	case <-d.conn.life.Done():
	case <-d.conn.ensemble.hurry:
		d.hurried = time.Now()
	}
}

// handshakeLimit is how long a handshake may take at first, so that a member that is frozen costs a
// few seconds, whatever the session timeout. It doubles with each round, because all members may be
// slow.
const handshakeLimit = 3 * time.Second

// dial connects to d's target. It blocks until the network has connected.
func (d *dialler) dial(network, _ string, timeout time.Duration) (net.Conn, error) {
	c := d.conn
	zk.WithMaxBufferSize(firstBuffer)(c.zk) // or zk.Conn makes a buffer of 1.5 megabytes for each connection

	// zk.Conn ends only over a connection, so a session that has ended gets a stub.
	if last := c.life.Err() != nil; last || d.drains {
		return c.stub(last), nil
	}
	c.mu.Lock()
	rounds, at, granted := c.failures/d.route.len(), c.host.Stake(), c.timeout
	lapsed := c.ID() != 0 && c.host.Silent()
	c.mu.Unlock()

	limit := handshakeLimit << min(rounds, 3)
	if at != StakeNothing {
		limit = min(limit, trust.Silence.Of(granted))
		timeout = min(timeout, limit)
	}

	wire, err := c.ensemble.connect(c.life, network, d.target, timeout)
	// The probe uses the connection up, so the handshake needs another.
	if err == nil && lapsed {
		if err = c.probe(wire, limit); err == nil {
			wire, err = c.ensemble.connect(c.life, network, d.target, timeout)
		}
	}

	if err == nil {
		var w *Link
		if w, err = newLink(c, wire, limit); err == nil {
			w.former, w.probed = d.target.former, lapsed
			return w, nil
		}
	}

	c.disconnected(nil, err)
	return nil, err
}

// probe finds out whether a server answers handshakes, over a connection that it closes. A proxy
// can pass the session's handshake on and then hang up, so that each attempt prolongs the session's
// life at the servers, for ever. Therefore, once the servers may have expired the session, an
// attempt begins with a handshake that prolongs nothing: it has a wrong password, which servers
// refuse before they look for the session.
func (c *Conn) probe(server net.Conn, timeout time.Duration) error {
	defer server.Close()
	defer context.AfterFunc(c.life, func() { server.Close() })()
	if err := server.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	_, err := exchange(server, bufio.NewReaderSize(server, 256), zkwire.AppendConnectRequest(nil, zkwire.ConnectRequest{
		Timeout: c.Timeout(), SessionID: c.ID(), Password: make([]byte, zkwire.PasswordSize),
	}))
	return err
}

// drainTime is how long a stub takes requests of zk.Conn, however many come: callers may repeat
// theirs for as long as they fail.
const drainTime = 20 * time.Millisecond

// stub returns a connection to no server. It resumes the session, and answers what zk.Conn has
// queued like a server that was left: the session has moved, so a request is not executed. Soon it
// hangs up.
//
// If last is true, the session has ended, and the stub lasts until zk.Conn hangs up. zk.Conn ends
// only when its request to close the session is answered, and otherwise waits a second or more. The
// stub discards all other requests, because zk.Conn's end fails them.
func (c *Conn) stub(last bool) net.Conn {
	here, there := net.Pipe()
	c.mu.Lock()
	granted := zkwire.ConnectResponse{SessionID: max(c.ID(), 1), Password: c.password(), Timeout: cmp.Or(c.timeout, c.ensemble.Timeout)}
	proved := c.proved
	c.mu.Unlock()

	go func() {
		defer here.Close()
		in := bufio.NewReader(here)
		if _, err := zkwire.ReadFrame(in, c.ensemble.Limit); err != nil {
			return
		}
		if _, err := here.Write(zkwire.AppendConnectResponse(nil, granted)); err != nil {
			return
		}
		if last {
			c.stubbing.Do(func() { close(c.stubbed) })
		} else {
			here.SetDeadline(time.Now().Add(drainTime))
		}

		for {
			frame, err := zkwire.ReadFrame(in, c.ensemble.Limit)
			if err != nil {
				return
			}

			head, _ := zkwire.ParseRequestHeader(frame)
			if last && head.Op != zkwire.OpCloseSession {
				continue
			}

			code := zkwire.CodeSessionMoved
			switch head.Op {
			case zkwire.OpPing, zkwire.OpSetWatches, zkwire.OpCloseSession:
				code = zkwire.CodeOK
			case zkwire.OpAuth: // first those that zk.Conn repeats because a server has accepted them
				if proved--; proved >= 0 {
					code = zkwire.CodeOK
				}
			}

			// The write doesn't block zk.Conn's writes, because zk.Conn reads in another goroutine.
			answer := make([]byte, zkwire.ReplyBody)
			zkwire.PutReplyHeader(answer, zkwire.ReplyHeader{Xid: head.Xid, Code: code})
			if _, err := here.Write(answer); err != nil {
				return
			}
		}
	}()
	return deaf{there}
}

// A deaf connection never reports that a write failed: see [Link.Write].
type deaf struct{ net.Conn }

func (c deaf) Write(p []byte) (int, error) {
	c.Conn.Write(p)
	return len(p), nil
}

var _ zk.HostProvider = (*dialler)(nil)
