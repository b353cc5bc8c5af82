package transcript

import (
	"bufio"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/must"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// waitLimit bounds waits that end at once unless the test fails.
const waitLimit = 20 * time.Second

// noZxid is the zxid of events without one.
const noZxid = -1

// sessionTimeout is the timeout that clients ask for. No run takes as long.
const sessionTimeout = 10 * time.Second

// A peer is one of the sessions of a run, with its connection while it has one.
type peer struct {
	number   int
	nc       net.Conn
	r        *bufio.Reader
	xid      int32
	id       int64 // 0 without a session
	password []byte

	formerID       int64 // of the session closed last
	formerPassword []byte
}

func (p *peer) disconnect() {
	if p.nc != nil {
		p.nc.Close()
		p.nc = nil
	}
}

// receive returns the next message, or io.EOF at the end of the connection.
func (p *peer) receive() (*zkwire.Decoder, error) {
	frame, err := zkwire.ReadFrame(p.r, math.MaxInt32)
	if err != nil {
		return nil, err
	}
	return &zkwire.Decoder{Rest: frame[4:]}, nil
}

// A run carries out steps on one server. If a server cannot be reached or does not answer, it fails
// by package must.
type run struct {
	dial  func() (net.Conn, error)
	at    *target
	log   *transcript
	peers [sessions]*peer
}

func newRun(dial func() (net.Conn, error), root, ip string) *run {
	at := &target{root: root, ip: ip}
	r := &run{dial: dial, at: at, log: &transcript{at: at}}
	for i := range r.peers {
		r.peers[i] = &peer{number: i}
	}
	return r
}

// play carries out the steps and returns the transcript.
func (r *run) play(steps []Step) (lines []string, err error) {
	err = must.Try(func() {
		for i, s := range steps {
			r.log.add(fmt.Sprintf("%d.", i+1), s)
			begin := len(r.log.lines)
			// Everything that the server sent until then belongs to this Step.
			r.do(s, r.peers[s.session])
			if s.does == doClose {
				r.log.sortFrom(begin)
			}
		}
	})
	return r.log.strings(), err
}

// sortFrom sorts the lines from begin on, whose order ZooKeeper does not define.
func (t *transcript) sortFrom(begin int) {
	slices.SortStableFunc(t.lines[begin:], func(a, b []any) int {
		return strings.Compare(fmt.Sprint(a...), fmt.Sprint(b...))
	})
}

func (r *run) do(s Step, p *peer) {
	switch s.does {
	// Some steps need a connection of their own, and others use the current connection.
	case doReconnect:
		r.connect(p, p.id, p.password, 0)
	case doWrongPassword:
		r.refused(p, p.id, make([]byte, 16), 0)
	case doReturn:
		r.refused(p, p.formerID, p.formerPassword, 0)
	case doFromFuture:
		r.refused(p, p.id, p.password, 1<<62)
	default:
		if p.nc == nil {
			r.connect(p, p.id, p.password, 0)
		}
	}

	if p.nc != nil {
		r.act(s, p)
	}

	// Other sessions may have got events because of this Step.
	for _, other := range r.peers {
		r.fence(other)
	}
}

func (r *run) auth(p *peer, scheme, secret string) {
	body := zkwire.AppendString(zkwire.AppendInt32(nil, 0), scheme)
	r.call(p, zkwire.XidAuth, zkwire.OpAuth, zkwire.AppendBuffer(body, []byte(secret)))
}

func (r *run) act(s Step, p *peer) {
	switch s.does {
	case doRequests:
		r.send(p, s.requests)
	case doAuth:
		r.auth(p, s.scheme, s.secret)
	case doClose:
		p.xid++
		r.call(p, p.xid, zkwire.OpCloseSession, nil)
		// Events of the session's own nodes come before its connection ends.
		r.fence(p)
		p.formerID, p.formerPassword = p.id, p.password
		p.id, p.password = 0, nil
		p.disconnect()
	}
}

// connect starts or resumes a session on a new connection.
func (r *run) connect(p *peer, id int64, password []byte, seen int64) {
	nc := must.Get(r.dial())
	must.Succeed(nc.SetDeadline(time.Now().Add(waitLimit)))
	fresh := &peer{nc: nc, r: bufio.NewReader(nc)}
	if password == nil {
		password = make([]byte, zkwire.PasswordSize)
	}

	must.Get(nc.Write(zkwire.AppendConnectRequest(nil, zkwire.ConnectRequest{
		LastZxid: seen, Timeout: sessionTimeout, SessionID: id, Password: password, ReadOnlyField: true,
	})))

	m, err := fresh.receive()
	if err != nil {
		r.ended(fresh, err)
		r.log.add(p.number, "disconnected")
		return
	}

	// A server refuses a session by granting session 0 and hanging up.
	version, timeout, given, secret := m.Int32(), m.Int32(), m.Int64(), m.Buffer()
	if given == 0 {
		r.log.add(p.number, "refused", version, timeout, len(secret), m.Bool(), r.log.rest(m))
		_, err := fresh.receive()
		r.ended(fresh, err)
		return
	}

	// Sessions get numbers in the order in which they start, because their IDs differ.
	if !slices.Contains(r.log.sessions, given) {
		r.log.sessions = append(r.log.sessions, given)
	}
	r.log.add(p.number, "connected", version, r.log.owner(given), len(secret), m.Bool(), r.log.rest(m))

	p.disconnect()
	p.nc, p.r, p.id, p.password = nc, fresh.r, given, secret
}

// refused tries to connect, which the server is expected to refuse.
func (r *run) refused(p *peer, id int64, password []byte, seen int64) {
	if id == 0 {
		return
	}
	was := p.nc
	r.connect(p, id, password, seen)
	if p.nc != was {
		r.log.add(p.number, "accepted")
	}
}

// ended records that a connection has ended. If it has not, that is a fault.
func (r *run) ended(p *peer, err error) {
	if nerr, ok := err.(net.Error); ok && nerr.Timeout() {
		must.Fail("no answer within %v: %w", waitLimit, err)
	}
	if err == nil {
		must.Fail("the connection has not ended")
	}
	p.disconnect()
}

// send sends requests and a ping, and records all messages up to the answer to the ping.
func (r *run) send(p *peer, requests []request) {
	var out []byte
	first := p.xid + 1
	for _, req := range requests {
		p.xid++
		out = append(out, frame(p.xid, req.op, r.at.body(nil, req))...)
	}

	// Errors show as the end of the connection. A server may hang up while we write.
	p.nc.Write(append(out, frame(zkwire.XidPing, zkwire.OpPing, nil)...))
	r.await(p, zkwire.XidPing, first, requests)
}

func frame(xid int32, op zkwire.Op, body []byte) []byte {
	return zkwire.SetLength(append(zkwire.AppendRequest(nil, zkwire.RequestHeader{Xid: xid, Op: op}), body...))
}

// call sends a request that may end the connection, and waits for the answer.
func (r *run) call(p *peer, xid int32, op zkwire.Op, body []byte) {
	p.nc.Write(frame(xid, op, body))
	r.await(p, xid, xid, []request{{op: op}})
}

// fence records what the server has sent to a session so far.
func (r *run) fence(p *peer) {
	if p.nc != nil {
		r.send(p, nil)
	}
}

// await records all messages up to the one with xid last, or to the end of the connection. first is
// the xid of the first of the requests.
func (r *run) await(p *peer, last, first int32, requests []request) {
	must.Succeed(p.nc.SetDeadline(time.Now().Add(waitLimit)))
	for {
		m, err := p.receive()
		if err != nil {
			r.ended(p, err)
			r.log.add(p.number, "connection ended")
			return
		}

		xid, zx, code := m.Int32(), m.Int64(), m.Int32()
		switch {
		case xid == zkwire.XidEvent:
			at := any(zx)
			if zx != noZxid {
				at = zxid(zx)
			}
			r.log.add(append([]any{p.number, "zxid", at, code}, r.log.event(m)...)...)
		case xid == zkwire.XidPing:
		default:
			// Answers carry the xid of their request, so its place in the list follows.
			i := int(xid - first)
			if i < 0 || i >= len(requests) {
				r.log.add(p.number, "answer to unknown request", xid, "code", code)
				break
			}
			r.answered(p, requests[i], zx, code, m)
		}

		if xid == last {
			return
		}
	}
}

func (r *run) answered(p *peer, req request, zx int64, code int32, m *zkwire.Decoder) {
	if req.op == zkwire.OpCheck && code == 0 {
		return // the real server does not answer these
	}

	// A write's zxid counts among this run's writes. The zxid of a read can be another client's.
	at := any(latest(zx))
	if req.writes() {
		at = zxid(zx)
		r.at.zxids = append(r.at.zxids, zx)
	}
	if req.op == zkwire.OpAuth {
		at = zx
	}

	words := []any{p.number, req.op, "code", named(code), "at", at}
	if code == 0 {
		words = append(words, r.log.answer(req, m)...)
	} else {
		words = append(words, r.log.rest(m))
	}
	r.log.add(words...)
}

// named returns an error code with its name.
func named(code int32) string {
	if code == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%v)", code, zkwire.Code(code))
}

// finish closes the sessions. It first resumes those that have no connection.
func (r *run) finish() error {
	return must.Try(func() {
		for _, p := range r.peers {
			// Without its connection, a session would keep its nodes until it expires.
			if p.id != 0 && p.nc == nil {
				r.connect(p, p.id, p.password, 0)
			}
			if p.nc != nil {
				p.xid++
				r.call(p, p.xid, zkwire.OpCloseSession, nil)
				r.fence(p) // the watches are gone once the connection has ended
				p.disconnect()
			}
		}
	})
}
