package doublebarrier

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A record is the data of process, the node above the members.
type record struct {
	preamble string // data of other clients, which are kept
	n        int    // what the members have agreed on; 0 if nothing
	from     int32  // members in line have this sequence number or a higher one; valid if n is
	gate     *gate  // nil while none is open
	version  int32
}

// recordMark is where our part of the data begins.
const recordMark = "zkrecipes/doublebarrier n="

func (r record) data() []byte {
	text := fmt.Sprintf("%s%s%d from=%d\n", r.preamble, recordMark, r.n, r.from)
	if r.gate != nil {
		text += r.gate.data()
	}
	return []byte(text)
}

// closed returns the data without the gate. Data of other clients are as they were found.
func (r record) closed() []byte {
	if r.preamble != "" {
		return []byte(r.preamble)
	}
	return record{n: r.n, from: r.from}.data()
}

// complete reports whether ready need not be read, too: there is a gate, or members have agreed
// since there was one.
func (r record) complete() bool { return r.gate != nil || r.n > 0 }

// read reads the record, and the gate from ready if the record may be lost. It is empty if there is
// neither.
func (b *Barrier) read(ctx context.Context, s *protocol.Session) (record, error) {
	for seen := ""; ; {
		r, err := b.readRecord(ctx, s)
		if err != nil || r.complete() {
			return r, err
		}

		g, err := b.readReady(ctx, s)
		if err != nil || g == nil {
			return r, err
		}

		// The gate may have opened after the record was read. Only a record that was read after
		// ready is known to be lost.
		if g.id == seen {
			r.gate = g
			return r, nil
		}
		seen = g.id
	}
}

func (b *Barrier) readRecord(ctx context.Context, s *protocol.Session) (record, error) {
	data, stat, err := s.Get(ctx, b.process())
	if errors.Is(err, zk.ErrNoNode) {
		return record{}, nil
	} else if err != nil {
		return record{}, err
	}
	return b.parseRecord(data, stat), nil
}

func (b *Barrier) parseRecord(data []byte, stat *zk.Stat) record {
	preamble, ours, _ := strings.Cut(string(data), recordMark)
	number, gate, _ := strings.Cut(ours, "\n")
	r := record{preamble: preamble, version: stat.Version}
	if _, err := fmt.Sscanf(number, "%d from=%d", &r.n, &r.from); err != nil {
		r.n = 0
	}
	if r.gate = b.parseGate(gate, stat.Mzxid); r.gate != nil {
		r.gate.version, r.gate.closed = r.version, r.closed()
	}
	return r
}

func (b *Barrier) readReady(ctx context.Context, s *protocol.Session) (*gate, error) {
	if stat, err := s.Exists(ctx, b.ready()); err != nil || stat == nil {
		return nil, err
	}

	data, stat, err := s.Get(ctx, b.ready())
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}

	g := b.parseGate(string(data), stat.Czxid)
	if g == nil {
		return nil, fmt.Errorf("%w: %s is not a gate of ours", zk.ErrNodeExists, b.ready())
	}
	return g, nil
}

// write replaces the record, which was read as r, and does the rest in the same transaction. It
// returns [zk.ErrBadVersion] if the record has changed, and errGone if our node is gone.
//
// Our own node has to exist. While it does, process cannot have been removed and created anew with
// the same version. So no gate has opened since r was read.
func (a *arrival) write(ctx context.Context, r record, data []byte, rest ...any) (record, error) {
	b := a.barrier
	ops := append([]any{
		&zk.CheckVersionRequest{Path: b.member(a.node), Version: -1},
		&zk.SetDataRequest{Path: b.process(), Data: data, Version: r.version},
	}, rest...)

	answers, err := multiOf(ctx, a.session, 2, ops)
	if errors.Is(err, zk.ErrNoNode) {
		return r, errGone
	} else if err != nil {
		return r, err
	}

	r.version = answers[1].Stat.Version
	return r, nil
}
