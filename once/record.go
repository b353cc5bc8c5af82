package once

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// Below the path are
//
//	<owner>-<key>-run-<sequence>      a call in line to run, ephemeral
//	done/<key>                        a record; its data say who ran last
//	done/<key>/open                   the key is not done yet; its version counts the runs that have failed
//
// with keys escaped. All calls are in one line, so that keys need no parent nodes of their own.
//
// The record is made before fn runs. A deletion makes the key done, because no quota can refuse a
// deletion.
const kind = "-run-"

func (o *Once) donesPath() string           { return o.recipe.Path() + "/done" }
func (o *Once) donePath(name string) string { return o.donesPath() + "/" + name }
func (o *Once) openPath(name string) string { return o.donePath(name) + "/open" }

// who returns the data of a record.
func who(g *protocol.Grant, done time.Time) []byte {
	host, _ := os.Hostname()
	data, _ := json.Marshal(Key{Host: host, PID: os.Getpid(), Node: g.Node(), Token: g.Token(), Done: done}) // cannot fail
	return data
}

// isDone reports whether a key is done, as far as the session's server knows.
func (o *Once) isDone(ctx context.Context, s *protocol.Session, name string) (bool, error) {
	stat, err := s.Exists(ctx, o.donePath(name))
	return err == nil && stat != nil && stat.NumChildren == 0, err
}

// A start is what a call finds out when its turn has come.
type start struct {
	done     bool          // there is nothing to run
	failures int32         // how many runs before have failed
	pause    time.Duration // how long to wait because of that
	dir      *zk.Stat      // of the node above the records; nil if there was a record before
}

// begin makes the record of a key that is about to run. If the answer to its first attempt was lost,
// it finds its own record, which is as good as another's: g alone runs.
func (o *Once) begin(ctx context.Context, g *protocol.Grant, name string) (start, error) {
	s, path := g.Session(), o.donePath(name)
	for range 3 {
		answers, err := s.Multi(ctx,
			&zk.CreateRequest{Path: path, Data: who(g, time.Time{})},
			&zk.CreateRequest{Path: o.openPath(name)},
			&zk.SetDataRequest{Path: o.donesPath(), Version: -1}) // forgetOldest relies on it
		if err == nil {
			return start{dir: answers[2].Stat}, nil
		} else if errors.Is(err, zk.ErrNoNode) {
			if _, err = s.EnsurePath(ctx, o.donesPath()); err == nil {
				continue
			}
		}
		if !errors.Is(err, zk.ErrNodeExists) {
			return start{}, err
		}

		record, err := s.Exists(ctx, path)
		if err != nil || record == nil {
			continue
		} else if record.NumChildren == 0 {
			return start{done: true}, nil
		}
		open, err := s.Exists(ctx, o.openPath(name))
		if err != nil || open == nil {
			continue
		}
		now := start{failures: open.Version}
		if now.failures > 0 {
			now.pause = min(time.Second<<min(now.failures-1, 10), time.Minute)
		}
		// The record says who runs, and the answer tells the server's time.
		if stat, err := s.Set(ctx, path, who(g, time.Time{}), -1); err == nil {
			now.pause -= time.Duration(stat.Mtime-open.Mtime) * time.Millisecond
		}
		return now, nil
	}
	return start{}, protocol.Again(fmt.Errorf("%w: the record of the key comes and goes", zk.ErrNoNode))
}

// fail counts a failed run, so that the next run waits. It tries once, because the pause is only a
// courtesy. The expected version keeps an attempt with a lost answer from counting twice.
func (o *Once) fail(ctx context.Context, g *protocol.Grant, name string, failures int32) {
	ctx, stop := protocol.Linger(ctx, recordTimeout)
	defer stop()
	_, err := g.Session().Set(ctx, o.openPath(name), nil, failures)
	if err != nil && !errors.Is(err, zk.ErrBadVersion) && g.Err() == nil {
		o.recipe.Logger().Warn("a failed run is not counted", "path", o.recipe.Path(), "key", name, "error", err)
	}
}

// record makes a key done, in a transaction that fails once g is lost. It blocks until the outcome
// is known, or can no longer be found out.
func (o *Once) record(ctx context.Context, g *protocol.Grant, name string) error {
	s := g.Session()
	ops := []any{g.Check(),
		&zk.DeleteRequest{Path: s.Path(o.openPath(name)), Version: -1},
		&zk.SetDataRequest{Path: s.Path(o.donePath(name)), Data: who(g, time.Now().UTC()), Version: -1},
	}
	for {
		_, err := protocol.DoOnce(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) {
			return protocol.Multi(c, ops...)
		}, func(ctx context.Context) (none []zk.MultiResponse, recorded bool, err error) {
			recorded, err = o.isRecorded(ctx, g, name)
			return none, recorded, err
		})
		switch {
		case errors.Is(err, protocol.ErrQuotaExceeded) && len(ops) > 2:
			ops = ops[:2] // no quota refuses a deletion
			continue
		case !errors.Is(err, zk.ErrNoNode):
			return err
		}

		// Either our own node is gone, or the record is.
		if err := g.Verify(ctx); err != nil {
			return err
		} else if now, err := o.begin(ctx, g, name); err != nil || now.done { // by hand
			return err
		}
	}
}

// isRecorded reports whether this run has made the key done.
func (o *Once) isRecorded(ctx context.Context, g *protocol.Grant, name string) (bool, error) {
	data, stat, err := g.Session().Get(ctx, o.donePath(name))
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("%w: %w", protocol.ErrUncertain, err)
	}
	var last Key // if the key was made done by hand, or by another run, they say so
	return stat.NumChildren == 0 && json.Unmarshal(data, &last) == nil && last.Token == g.Token(), nil
}
