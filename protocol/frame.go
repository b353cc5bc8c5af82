package protocol

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// maxFrame bounds a frame of a server. zk.Conn allocates the whole of one before it reads it. The
// longest answers are listings. This one has five million contenders.
const maxFrame = 256 << 20

// sizeOfStat is the size of a Stat in an answer.
const sizeOfStat = 68

// checkFrame waits for the head of a frame. It returns an error if zk.Conn would end the process
// because of the body.
func (w *connection) checkFrame(size int) error {
	head, err := w.in.Peek(min(4+size, zkwire.ReplyBody+4))
	if err != nil {
		return err
	}
	reply, ok := zkwire.ParseReplyHeader(head)
	if !ok || reply.Code != zkwire.CodeOK {
		return nil
	}

	op := w.asked(reply.Xid)
	switch op {
	case zkwire.OpGetData, zkwire.OpGetACL, zkwire.OpGetChildren, zkwire.OpGetChildren2:
		ok = fits(op, head)
	case zkwire.OpMulti:
		ok, err = w.wholeMulti(size)
	}
	if err == nil && !ok {
		err = fmt.Errorf("answer to %v: %w", op, zkwire.ErrMalformed)
	}
	return err
}

// asked returns what zk.Conn has asked for with this number, or 0.
func (w *connection) asked(xid int32) zkwire.Op {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.sent, func(r sentRequest) bool { return r.xid == xid && r.done == nil })
	if i < 0 {
		return 0
	}
	return w.sent[i].op
}

// fits reports whether the frame has room for the length or count with which its body begins.
// zk.Conn allocates as much before it looks.
func fits(op zkwire.Op, head []byte) bool {
	body := zkwire.Decoder{Rest: head[zkwire.ReplyBody:]}
	n, room := int(body.Int32()), int(binary.BigEndian.Uint32(head))-zkwire.ReplyBody
	if op == zkwire.OpGetData {
		return !body.Bad && n >= -1 && n <= room // -1 is null
	}
	return !body.Bad && n >= 0 && n <= room/4 // each element begins with a number
}

// wholeMulti waits for the whole answer to a transaction. It reports whether no result is cut
// short: zk.Conn would panic. Such an answer is less than four times as long as its request.
func (w *connection) wholeMulti(size int) (bool, error) {
	if size > 4*maxRequest {
		return false, nil
	}
	if w.in.Size() < 4+size { // a new reader reads from the one before it, so there must be few
		w.in = bufio.NewReaderSize(w.in, max(4+size, 2*w.in.Size()))
	}
	for n := piece; n < size; n += piece {
		if _, err := w.in.Peek(n); err != nil {
			return false, err
		}
		w.noteProgress()
	}
	frame, err := w.in.Peek(4 + size)
	if err != nil {
		return false, err
	}

	results := zkwire.Decoder{Rest: frame[zkwire.ReplyBody:]}
	for {
		op, done := zkwire.Op(results.Int32()), results.Bool()
		results.Int32() // an error, which OpError has once more
		if results.Bad || done {
			return !results.Bad, nil
		}
		switch op {
		case zkwire.OpCheck, zkwire.OpDelete:
		case zkwire.OpCreate:
			_ = results.String()
		case zkwire.OpSetData:
			results.Rest = results.Rest[min(sizeOfStat, len(results.Rest)):]
		case zkwire.OpError:
			results.Int32()
		default: // zk.Conn looks no further
			return true, nil
		}
	}
}
