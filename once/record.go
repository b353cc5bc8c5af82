package once

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A run is the data of a done key's node.
type run struct {
	Host  string    `json:"host"`
	PID   int       `json:"pid"`
	Node  string    `json:"node"` // of the call in line, which had it alone
	Token int64     `json:"token"`
	Done  time.Time `json:"done"` // by the clock of that host
}

// record makes a key done, in a transaction that fails once g is lost. It blocks until the outcome
// is known, or can no longer be found out. It returns how many keys are remembered, or 0 if it does
// not know.
func (o *Once) record(ctx context.Context, g *protocol.Grant, name string) (remembered int, err error) {
	host, _ := os.Hostname()
	data, err := json.Marshal(run{host, os.Getpid(), g.Node(), g.Token(), time.Now().UTC()})
	if err != nil {
		return 0, err
	}
	for {
		remembered, err := o.recordOnce(ctx, g, name, data)
		if !errors.Is(err, zk.ErrNoNode) {
			return remembered, err
		}

		// Either our own node is gone, or those above the new ones are.
		if err := g.Verify(ctx); err != nil {
			return 0, err
		}
		s := g.Session()
		for _, dir := range []string{o.donesPath(), o.orderPath()} {
			if _, err := s.EnsurePath(ctx, dir); err != nil {
				return 0, err
			}
		}
	}
}

func (o *Once) recordOnce(ctx context.Context, g *protocol.Grant, name string, data []byte) (remembered int, err error) {
	s := g.Session()
	order := s.Path(o.orderPath())
	number := fmt.Sprintf("/%016x-", g.Token()) // which makes sure that the name is never used again
	ops := []any{
		g.Check(),
		&zk.CreateRequest{Path: s.Path(o.donePath(name)), Data: data, Acl: s.ACL(o.donePath(name))},
		&zk.CreateRequest{Path: order + number, Data: []byte(name), Acl: s.ACL(o.orderPath() + number), Flags: zk.FlagSequence},
		// The answer to this says how many there are.
		&zk.SetDataRequest{Path: order, Version: -1},
	}

	var pending atomic.Bool // an attempt may have been executed, or may yet be
	remembered, err = protocol.DoOnce(ctx, s, func(c *zk.Conn) (int, error) {
		pending.Store(true)
		answers, err := protocol.Multi(c, ops...)
		if err == nil {
			return int(answers[len(answers)-1].Stat.NumChildren), nil
		}
		if !protocol.OutcomeUnknown(err) {
			pending.Store(false)
		}
		return 0, err
	}, func(ctx context.Context) (_ int, recorded bool, err error) {
		recorded, err = o.isRecorded(ctx, s, name, data)
		if err == nil && !recorded {
			pending.Store(false)
		}
		return 0, recorded, err
	})
	if err != nil && pending.Load() {
		err = fmt.Errorf("%w: %w", protocol.ErrUncertain, err)
	}
	return remembered, err
}

// isRecorded reports whether the key was made done with this very data.
func (o *Once) isRecorded(ctx context.Context, s *protocol.Session, name string, data []byte) (bool, error) {
	if err := s.Sync(ctx, o.donePath(name)); err != nil { // or else a server that lags may hide it
		return false, err
	}
	there, _, err := s.Get(ctx, o.donePath(name))
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	return bytes.Equal(there, data), err
}
