package doublebarrier

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A record has the data of process, the node above the members.
type record struct {
	layout.DoubleRecord
	gate *gate // nil while none is open

	version         int32
	mzxid, creation int64 // the transactions that wrote the data, and created process
}

// closed returns the data without the gate.
func (r record) closed() []byte {
	r.Members = nil
	return r.Data()
}

// complete reports whether ready need not be read, too: there is a gate, or members have agreed
// since there was one.
func (r record) complete() bool { return r.gate != nil || r.Size > 0 }

// read reads the record, and the gate from ready if the record may be lost. It is empty if there is
// neither.
func (at site) read(ctx context.Context, s *recipe.Session) (record, error) {
	for seen := ""; ; {
		r, err := at.readNode(ctx, s, at.process())
		if err != nil || r.complete() {
			return r, err
		}

		ready, err := at.readNode(ctx, s, at.ready())
		if err != nil || ready.creation == 0 {
			return r, err
		} else if ready.gate == nil {
			return r, fmt.Errorf("%w: %s is not a gate of ours", zk.ErrNodeExists, at.ready())
		}

		// The gate may have opened after the record was read. Only a record that was read after
		// ready is known to be lost.
		if ready.Gate == seen {
			ready.gate.version = 0
			ready.Preamble, ready.version, ready.mzxid, ready.creation = r.Preamble, r.version, r.mzxid, r.creation
			return ready, nil
		}
		seen = ready.Gate
	}
}

// readNode reads process or ready. The record is empty if there is no such node.
func (at site) readNode(ctx context.Context, s *recipe.Session, path string) (record, error) {
	data, stat, err := s.Get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return record{}, nil
	} else if err != nil {
		return record{}, err
	}
	return at.parse(data, stat), nil
}

// parse reads the data of process or ready. One transaction writes the gate to both, and the token
// is its number.
func (at site) parse(data []byte, stat *zk.Stat) record {
	r := record{layout.ParseDoubleRecord(data), nil, stat.Version, stat.Mzxid, stat.Czxid}
	if len(r.Members) > 0 {
		r.gate = &gate{
			site: at, id: r.Gate, token: stat.Mzxid, round: r.Rounds, members: r.Members,
			version: r.version, closed: r.closed(),
		}
	}
	return r
}
