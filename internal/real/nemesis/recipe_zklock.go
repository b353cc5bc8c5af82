package main

import (
	"context"
	"errors"
	"strings"

	"github.com/go-zookeeper/zk"
)

// zkLockWork uses go-zookeeper's lock instead of ours. Its holder has no token, and can't ask
// whether it still holds. So it does what a careful user could do, and looks at the state of its
// connection.
func zkLockWork(w *worker) workload {
	conn, _, err := zk.Connect(strings.Split(w.Connect, ","), w.Timeout, zk.WithLogger(silence{}))
	if err != nil {
		panic(err)
	}
	return workload{step: func() error {
		l := zk.NewLock(conn, w.Path, zk.WorldACL(zk.PermAll))
		o := w.call("lock", "")
		if err := l.Lock(); err != nil {
			return w.returns(o, err, Failed)
		}

		w.hold(o, zkLockGrant{conn}, w.spell(), false)
		_, err := w.release(o, zkLockGrant{conn}, func(context.Context) error { return l.Unlock() })
		return err
	}}
}

type zkLockGrant struct{ conn *zk.Conn }

func (g zkLockGrant) Token() int64 { return 0 }

func (g zkLockGrant) Err() error {
	if state := g.conn.State(); state != zk.StateHasSession {
		return errors.New(state.String())
	}
	return nil
}

type silence struct{}

func (silence) Printf(string, ...any) {}
