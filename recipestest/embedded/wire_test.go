package embedded_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// A wireClient speaks the protocol packet by packet, for requests that go-zookeeper cannot send.
type wireClient struct {
	nc       net.Conn
	r        *bufio.Reader
	xid      int32
	session  int64
	password []byte
	timeout  int32
	readOnly []byte   // the bytes after the password in the answer to the handshake
	events   []string // types and paths: 1 created, 2 deleted, 3 data changed, 4 children changed
}

// hello is a handshake.
type hello struct {
	seen     int64
	timeout  int32
	session  int64
	password []byte
	readOnly bool // send the read-only field
}

func (h hello) bytes() []byte {
	b := packet{}.int32(0).int64(h.seen).int32(h.timeout).int64(h.session).buffer(h.password)
	if h.readOnly {
		b = b.bool(false)
	}
	return b
}

// handshake sends h over nc and reads the answer.
func handshake(nc net.Conn, h hello) (*wireClient, error) {
	w := &wireClient{nc: nc, r: bufio.NewReader(nc)}
	nc.SetDeadline(time.Now().Add(waitLimit))
	if _, err := nc.Write(frame(h.bytes())); err != nil {
		return w, err
	}
	a, err := w.read()
	if err != nil {
		return w, err
	}
	a.Int32()
	w.timeout, w.session, w.password = a.Int32(), a.Int64(), a.Buffer()
	w.readOnly = a.Rest
	return w, nil
}

func frame(b packet) packet { return append(packet{}.int32(int32(len(b))), b...) }

func (w *wireClient) read() (*answer, error) {
	b, err := zkwire.ReadFrame(w.r, math.MaxInt32)
	if err != nil {
		return nil, err
	}
	return &answer{Decoder: zkwire.Decoder{Rest: b[4:]}}, nil
}

// send sends a request without waiting for its answer.
func (w *wireClient) send(op zkwire.Op, body []byte) error {
	w.xid++
	_, err := w.nc.Write(append(packet{}.int32(int32(8+len(body))).int32(w.xid).op(op), body...))
	return err
}

// call sends a request and returns its answer. The events that come first are added to w.events.
func (w *wireClient) call(op zkwire.Op, body []byte) (*answer, error) {
	w.nc.SetDeadline(time.Now().Add(waitLimit)) // restarts with each call
	if err := w.send(op, body); err != nil {
		return nil, err
	}
	return w.receive()
}

func (w *wireClient) receive() (*answer, error) {
	for {
		a, err := w.read()
		if err != nil {
			return nil, err
		}
		a.xid, a.zxid, a.code = a.Int32(), a.Int64(), zkwire.Code(a.Int32())
		if a.xid != -1 {
			return a, nil
		}
		event, _ := a.Int32(), a.Int32()
		w.events = append(w.events, fmt.Sprintf("%d %s", event, a.String()))
	}
}

// takeEvents returns the events so far and forgets them.
func (w *wireClient) takeEvents() []string {
	events := w.events
	w.events = nil
	return events
}

// A packet is a frame under construction.
type packet []byte

func (p packet) int32(v int32) packet   { return zkwire.AppendInt32(p, v) }
func (p packet) op(v zkwire.Op) packet  { return p.int32(int32(v)) }
func (p packet) int64(v int64) packet   { return zkwire.AppendInt64(p, v) }
func (p packet) bool(v bool) packet     { return zkwire.AppendBool(p, v) }
func (p packet) string(s string) packet { return zkwire.AppendString(p, s) }
func (p packet) buffer(b []byte) packet { return zkwire.AppendBuffer(p, b) }

// acl appends a list with one entry.
func (p packet) acl(perms int32, scheme, id string) packet {
	return p.int32(1).int32(perms).string(scheme).string(id)
}

// open appends the list that grants everything to every client.
func (p packet) open() packet { return p.acl(31, "world", "anyone") }

// part begins a part of a multi request, end ends the request.
func (p packet) part(op zkwire.Op) packet { return p.op(op).bool(false).int32(-1) }
func (p packet) end() packet              { return p.int32(-1).bool(true).int32(-1) }

// create appends the fields of a create request.
func (p packet) create(path string, data []byte, flags int32) packet {
	return p.string(path).buffer(data).open().int32(flags)
}

// An answer is a reply.
type answer struct {
	xid  int32
	zxid int64
	code zkwire.Code
	zkwire.Decoder
}

func (a *answer) stat() (st zk.Stat) {
	n, err := binary.Decode(a.Rest, binary.BigEndian, &st)
	a.Rest, a.Bad = a.Rest[n:], err != nil
	return st
}
