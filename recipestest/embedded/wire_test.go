package embedded_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// A wireClient speaks the protocol packet by packet, for requests that go-zookeeper cannot send.
type wireClient struct {
	nc       net.Conn
	r        *bufio.Reader
	xid      int32
	session  int64
	password []byte
	timeout  int32
	readOnly []byte // the bytes after the password in the answer to the handshake
	events   []string
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
	if err := w.write(h.bytes()); err != nil {
		return w, err
	}
	frame, err := w.read()
	if err != nil {
		return w, err
	}
	a := &answer{body: frame}
	a.int32()
	w.timeout, w.session, w.password = a.int32(), a.int64(), a.buffer()
	w.readOnly = a.body
	return w, nil
}

func (w *wireClient) write(frame []byte) error {
	_, err := w.nc.Write(append(packet{}.int32(int32(len(frame))), frame...))
	return err
}

func (w *wireClient) read() ([]byte, error) {
	var n [4]byte
	if _, err := io.ReadFull(w.r, n[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(n[:]))
	_, err := io.ReadFull(w.r, frame)
	return frame, err
}

// send sends a request without waiting for its answer.
func (w *wireClient) send(op int32, body []byte) error {
	w.xid++
	return w.write(append(packet{}.int32(w.xid).int32(op), body...))
}

// call sends a request and returns its answer. The events that come first are added to w.events.
func (w *wireClient) call(op int32, body []byte) (*answer, error) {
	w.nc.SetDeadline(time.Now().Add(waitLimit)) // restarts with each call
	if err := w.send(op, body); err != nil {
		return nil, err
	}
	return w.receive()
}

func (w *wireClient) receive() (*answer, error) {
	for {
		frame, err := w.read()
		if err != nil {
			return nil, err
		}
		a := &answer{body: frame}
		a.xid, a.zxid, a.code = a.int32(), a.int64(), a.int32()
		if a.xid != -1 {
			return a, nil
		}
		event, _ := a.int32(), a.int32()
		w.events = append(w.events, fmt.Sprintf("%d %s", event, a.string()))
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

func (p packet) int32(v int32) packet { return binary.BigEndian.AppendUint32(p, uint32(v)) }
func (p packet) int64(v int64) packet { return binary.BigEndian.AppendUint64(p, uint64(v)) }

func (p packet) bool(v bool) packet {
	if v {
		return append(p, 1)
	}
	return append(p, 0)
}

func (p packet) string(s string) packet { return append(p.int32(int32(len(s))), s...) }

func (p packet) buffer(b []byte) packet {
	if b == nil {
		return p.int32(-1)
	}
	return append(p.int32(int32(len(b))), b...)
}

func (p packet) strings(list ...string) packet {
	p = p.int32(int32(len(list)))
	for _, s := range list {
		p = p.string(s)
	}
	return p
}

// acl appends a list with one entry.
func (p packet) acl(perms int32, scheme, id string) packet {
	return p.int32(1).int32(perms).string(scheme).string(id)
}

// open appends the list that grants everything to every client.
func (p packet) open() packet { return p.acl(31, "world", "anyone") }

// part begins a part of a multi request, end ends the request.
func (p packet) part(op int32) packet { return p.int32(op).bool(false).int32(-1) }
func (p packet) end() packet          { return p.int32(-1).bool(true).int32(-1) }

// create appends the fields of a create request.
func (p packet) create(path string, data []byte, flags int32) packet {
	return p.string(path).buffer(data).open().int32(flags)
}

// An answer is a reply, read field by field. Reading beyond its end panics.
type answer struct {
	xid  int32
	zxid int64
	code int32
	body []byte
}

func (a *answer) take(n int) []byte {
	b := a.body[:n]
	a.body = a.body[n:]
	return b
}

func (a *answer) int32() int32 { return int32(binary.BigEndian.Uint32(a.take(4))) }
func (a *answer) int64() int64 { return int64(binary.BigEndian.Uint64(a.take(8))) }
func (a *answer) bool() bool   { return a.take(1)[0] != 0 }

func (a *answer) string() string { return string(a.buffer()) }

func (a *answer) buffer() []byte {
	n := a.int32()
	if n == -1 {
		return nil
	}
	return a.take(int(n))
}

func (a *answer) strings() []string {
	list := make([]string, a.int32())
	for i := range list {
		list[i] = a.string()
	}
	return list
}

// znodeStat is a Stat, its fields in the order of the protocol.
type znodeStat struct {
	czxid, mzxid, ctime, mtime  int64
	version, cversion, aversion int32
	owner                       int64
	length, children            int32
	pzxid                       int64
}

func (a *answer) stat() znodeStat {
	return znodeStat{
		czxid: a.int64(), mzxid: a.int64(), ctime: a.int64(), mtime: a.int64(),
		version: a.int32(), cversion: a.int32(), aversion: a.int32(),
		owner: a.int64(), length: a.int32(), children: a.int32(), pzxid: a.int64(),
	}
}
