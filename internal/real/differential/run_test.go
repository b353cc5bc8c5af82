package differential_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

// waitLimit bounds waits that end at once unless the test fails.
const waitLimit = 20 * time.Second

// sessionTimeout is the timeout that clients ask for, in milliseconds. No run takes as long.
const sessionTimeout = 10_000

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
func (p *peer) receive() (*message, error) {
	var head [4]byte
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(p.r, b)
	return &message{b: b}, err
}

// A run carries out steps on one server.
type run struct {
	address string
	at      *target
	log     *transcript
	peers   [sessions]*peer
}

func newRun(address, root, ip string) *run {
	at := &target{root: root, ip: ip}
	r := &run{address: address, at: at, log: &transcript{at: at}}
	for i := range r.peers {
		r.peers[i] = &peer{number: i}
	}
	return r
}

// A fault is a failure of the environment and not an answer: a server cannot be reached or does not
// answer.
type fault struct{ err error }

// attempt runs f and returns the fault that ended it, if any.
func attempt(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case fault:
			err = r.err
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

func check(err error) {
	if err != nil {
		panic(fault{err})
	}
}

// play carries out the steps and returns the transcript.
func (r *run) play(steps []step) (lines []string, err error) {
	err = attempt(func() {
		for i, s := range steps {
			r.log.add(fmt.Sprintf("%d.", i+1), s)
			begin := len(r.log.lines)
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

func (r *run) do(s step, p *peer) {
	switch s.does {
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

	for _, other := range r.peers {
		r.fence(other)
	}
}

func (r *run) act(s step, p *peer) {
	switch s.does {
	case doRequests:
		r.send(p, s.requests)
	case doAuth:
		r.call(p, xidAuth, opAuth, packet{}.int32(0).string(s.scheme).buffer([]byte(s.secret)))
	case doClose:
		p.xid++
		r.call(p, p.xid, opCloseSession, nil)
		r.fence(p)
		p.formerID, p.formerPassword = p.id, p.password
		p.id, p.password = 0, nil
		p.disconnect()
	}
}

// connect starts or resumes a session on a new connection.
func (r *run) connect(p *peer, id int64, password []byte, seen int64) {
	nc, err := net.DialTimeout("tcp", r.address, waitLimit)
	check(err)
	check(nc.SetDeadline(time.Now().Add(waitLimit)))
	fresh := &peer{nc: nc, r: bufio.NewReader(nc)}
	if password == nil {
		password = make([]byte, 16)
	}

	hello := packet{}.int32(0).int64(seen).int32(sessionTimeout).int64(id).buffer(password).bool(false)
	_, err = nc.Write(hello.frame())
	check(err)

	m, err := fresh.receive()
	if err != nil {
		r.ended(fresh, err)
		r.log.add(p.number, "disconnected")
		return
	}

	version, timeout, given, secret := m.int32(), m.int32(), m.int64(), m.buffer()
	if given == 0 {
		r.log.add(p.number, "refused", version, timeout, len(secret), m.bool(), r.log.rest(m))
		_, err := fresh.receive()
		r.ended(fresh, err)
		return
	}

	if !slices.Contains(r.log.sessions, given) {
		r.log.sessions = append(r.log.sessions, given)
	}
	r.log.add(p.number, "connected", version, r.log.owner(given), len(secret), m.bool(), r.log.rest(m))

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
		check(fmt.Errorf("no answer within %v: %w", waitLimit, err))
	}
	if err == nil {
		check(fmt.Errorf("the connection has not ended"))
	}
	p.disconnect()
}

// send sends requests and a ping, and records all messages up to the answer to the ping.
func (r *run) send(p *peer, requests []request) {
	var out packet
	first := p.xid + 1
	for _, req := range requests {
		p.xid++
		out = append(out, append(packet{}.int32(p.xid).int32(req.op), r.at.body(req)...).frame()...)
	}

	p.nc.Write(append(out, packet{}.int32(xidPing).int32(opPing).frame()...))
	r.await(p, xidPing, first, requests)
}

// call sends a request that may end the connection, and waits for the answer.
func (r *run) call(p *peer, xid, op int32, body packet) {
	p.nc.Write(append(packet{}.int32(xid).int32(op), body...).frame())
	r.await(p, xid, xid, []request{{op: op}})
}

// fence records what the server has sent to a session so far.
func (r *run) fence(p *peer) {
	if p.nc == nil {
		return
	}
	p.nc.Write(packet{}.int32(xidPing).int32(opPing).frame())
	r.await(p, xidPing, 0, nil)
}

// await records all messages up to the one with xid last, or to the end of the connection. first is
// the xid of the first of the requests.
func (r *run) await(p *peer, last, first int32, requests []request) {
	check(p.nc.SetDeadline(time.Now().Add(waitLimit)))
	for {
		m, err := p.receive()
		if err != nil {
			r.ended(p, err)
			r.log.add(p.number, "connection ended")
			return
		}

		xid, zx, code := m.int32(), m.int64(), m.int32()
		switch {
		case xid == xidEvent:
			at := any(zx)
			if zx != noZxid {
				at = zxid(zx)
			}
			r.log.add(append([]any{p.number, "zxid", at, code}, r.log.event(m)...)...)
		case xid == xidPing:
		default:
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

func (r *run) answered(p *peer, req request, zx int64, code int32, m *message) {
	if req.op == opCheck && code == 0 {
		return // the real server does not answer these
	}

	at := any(latest(zx))
	if req.writes() {
		at = zxid(zx)
		r.at.zxids = append(r.at.zxids, zx)
	}
	if req.op == opAuth {
		at = zx
	}

	words := []any{p.number, opName(req.op), "code", code, "at", at}
	if code == 0 {
		words = append(words, r.log.answer(req, m)...)
	} else {
		words = append(words, r.log.rest(m))
	}
	r.log.add(words...)
}

// finish closes the sessions. It first resumes those that have no connection.
func (r *run) finish() error {
	return attempt(func() {
		for _, p := range r.peers {
			if p.id != 0 && p.nc == nil {
				r.connect(p, p.id, p.password, 0)
			}
			if p.nc != nil {
				p.xid++
				r.call(p, p.xid, opCloseSession, nil)
				p.disconnect()
			}
		}
	})
}
