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
	rounds   int64  // how many have begun, the present one included
	gate     *gate  // nil while none is open

	version         int32
	mzxid, creation int64 // the transactions that wrote the data, and created process
}

// recordMark is where our part of the data begins.
const recordMark = "zkrecipes/doublebarrier n="

func (r record) data() []byte {
	text := fmt.Sprintf("%s%s%d from=%d rounds=%d\n", r.preamble, recordMark, r.n, r.from, r.rounds)
	if r.gate != nil {
		text += r.gate.data()
	}
	return []byte(text)
}

// closed returns the data without the gate.
func (r record) closed() []byte {
	r.gate = nil
	return r.data()
}

// complete reports whether ready need not be read, too: there is a gate, or members have agreed
// since there was one.
func (r record) complete() bool { return r.gate != nil || r.n > 0 }

// lost reports whether the data were changed, and not to a record of ours. So there may have been a
// gate, whose members cannot be told from those that wait for one.
func (r record) lost() bool { return r.n == 0 && r.version > 0 }

// read reads the record, and the gate from ready if the record may be lost. It is empty if there is
// neither.
func (b *Barrier) read(ctx context.Context, s *protocol.Session) (record, error) {
	for seen := ""; ; {
		r, err := b.readRecord(ctx, s)
		if err != nil || r.complete() {
			return r, err
		}

		ready, err := b.readReady(ctx, s)
		if err != nil || ready.gate == nil {
			return r, err
		}

		// The gate may have opened after the record was read. Only a record that was read after
		// ready is known to be lost.
		if ready.gate.id == seen {
			r.n, r.from, r.rounds, r.gate = ready.n, ready.from, ready.rounds, ready.gate
			return r, nil
		}
		seen = ready.gate.id
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

// parseRecord reads what data wrote, to process or to ready. The gate's token is the number of the
// transaction that wrote them.
func (b *Barrier) parseRecord(data []byte, stat *zk.Stat) record {
	preamble, ours, _ := strings.Cut(string(data), recordMark)
	numbers, gate, _ := strings.Cut(ours, "\n")
	none := record{preamble: preamble, version: stat.Version, mzxid: stat.Mzxid, creation: stat.Czxid}
	r := none
	if _, err := fmt.Sscanf(numbers, "%d from=%d rounds=%d", &r.n, &r.from, &r.rounds); err != nil {
		return none
	}

	if r.gate = b.parseGate(gate); r.gate != nil {
		r.gate.token, r.gate.round = stat.Mzxid, r.rounds
		r.gate.version, r.gate.closed = r.version, r.closed()
	}
	return r
}

// readReady reads the record that was written to ready. It has no gate if there is no ready.
func (b *Barrier) readReady(ctx context.Context, s *protocol.Session) (record, error) {
	if stat, err := s.Exists(ctx, b.ready()); err != nil || stat == nil {
		return record{}, err
	}

	data, stat, err := s.Get(ctx, b.ready())
	if errors.Is(err, zk.ErrNoNode) {
		return record{}, nil
	} else if err != nil {
		return record{}, err
	}

	r := b.parseRecord(data, stat)
	if r.gate == nil {
		return record{}, fmt.Errorf("%w: %s is not a gate of ours", zk.ErrNodeExists, b.ready())
	}
	r.gate.version = 0
	return r, nil
}

// write replaces the record, which was read as r, and does the rest in the same transaction. It
// returns [zk.ErrBadVersion] if the record has changed, and errGone if our node is gone.
//
// Our own node has to exist. While it does, process cannot have been removed and created anew with
// the same version. So no gate has opened since r was read.
func (a *arrival) write(ctx context.Context, r record, data []byte, rest ...any) (record, error) {
	b, certain := a.barrier, a.uncounted(r)
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

	r.version, r.mzxid = answers[1].Stat.Version, answers[1].Stat.Mzxid
	if certain {
		a.spared = &r
	}
	return r, nil
}
