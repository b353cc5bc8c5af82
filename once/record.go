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
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// Below the path are
//
//	<owner>-<key>-run-<sequence>   a call in line to run, ephemeral
//	done/<key>                     a record; its data say who ran last
//	done/<key>/open                the key is not done yet; its version counts the failed runs
//
// with keys escaped. All calls are in the same line, so that keys need no parent nodes of their
// own.
//
// The record is made before fn runs. A deletion makes the key done, because no quota can refuse a
// deletion.
const kind = "-run-"

func (o *Once) donesPath() string           { return o.recipe.Path() + "/done" }
func (o *Once) donePath(name string) string { return o.donesPath() + "/" + name }
func (o *Once) openPath(name string) string { return o.donePath(name) + "/open" }

// who returns the data of a record. The node's name is the key, so the data have no name.
func who(g *recipe.Grant, done time.Time) []byte {
	host, _ := os.Hostname()
	data, _ := json.Marshal(Key{Host: host, PID: os.Getpid(), Node: g.Node(), Token: g.Token(), Done: done}) // cannot fail
	return data
}

// isDone reports whether a key is done, as far as the session's server knows.
func (o *Once) isDone(ctx context.Context, s *recipe.Session, name string) (bool, error) {
	stat, err := s.Exists(ctx, o.donePath(name))
	return err == nil && stat != nil && stat.NumChildren == 0, err
}

// A start is the state of a key when a call has reached the head of the line.
type start struct {
	done     bool     // there is nothing to run
	failures int32    // how many earlier runs have failed
	dir      *zk.Stat // of the node above the records; nil if there was a record before
}

// begin makes the record of a key that is about to run, and waits if its last run has failed. If
// the answer to its first attempt was lost, begin finds its own record. That is as good as the
// record of another call, because only g runs.
func (o *Once) begin(ctx context.Context, g *recipe.Grant, name string) (start, error) {
	s, path, paused := g.Session(), o.donePath(name), false
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

		// There is a record: of a key that is done, or of a run that has failed or died.
		if done, err := o.isDone(ctx, s, name); done || err != nil {
			return start{done: done}, err
		}
		open, err := s.Exists(ctx, o.openPath(name))
		if err != nil {
			return start{}, err
		} else if open == nil { // the next attempt finds out why
			continue
		}

		now := start{failures: open.Version}
		pause := min(time.Second<<min(max(0, now.failures-1), 10), time.Minute)
		// The record must say who runs. The answer has the server's time.
		if stat, err := s.Set(ctx, path, who(g, time.Time{}), -1); err == nil {
			pause -= time.Duration(max(0, stat.Mtime-open.Mtime)) * time.Millisecond // the clock may be set back
		}
		if now.failures == 0 || pause <= 0 || paused {
			return now, nil
		}

		select {
		case <-time.After(pause): // meanwhile, the key can have been made done by hand
			paused = true
		case <-g.Done():
			return now, g.Err()
		case <-ctx.Done():
			return now, fmt.Errorf("waiting after a run that has failed: %w", recipe.Ended(ctx))
		}
	}
	return start{}, recipe.Again(fmt.Errorf("%w: the record of the key comes and goes", zk.ErrNoNode))
}

// fail counts a failed run, so that the next run waits. It tries once, because the pause is only a
// courtesy. If the answer is lost, the expected version keeps the next attempt from counting twice.
func (o *Once) fail(ctx context.Context, g *recipe.Grant, name string, failures int32) {
	_, err := g.Session().Set(ctx, o.openPath(name), nil, failures)
	if err != nil && !errors.Is(err, zk.ErrBadVersion) && g.Err() == nil {
		o.recipe.Logger().Warn("a failed run is not counted", "path", o.recipe.Path(), "key", name, "error", err)
	}
}

// record makes a key done, in a transaction that fails once g is lost. It blocks until the outcome
// is known, or can no longer be found out.
func (o *Once) record(ctx context.Context, g *recipe.Grant, name string) error {
	s := g.Session()
	ops := []any{g.Check(),
		&zk.DeleteRequest{Path: s.Path(o.openPath(name)), Version: -1},
		&zk.SetDataRequest{Path: s.Path(o.donePath(name)), Data: who(g, time.Now().UTC()), Version: -1},
	}

	// If another run or an operator has made the key done, the data are theirs.
	isRecorded := func(ctx context.Context) (none []zk.MultiResponse, _ bool, err error) {
		there, err := o.read(ctx, s, []string{name})
		if err != nil {
			return nil, false, fmt.Errorf("%w: %w", protocol.ErrUncertain, err)
		}
		return nil, len(there) > 0 && there[0].done() && there[0].Token == g.Token(), nil
	}

	for {
		_, err := recipe.DoOnce(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) { return recipe.Multi(c, ops...) }, isRecorded)
		switch {
		case (errors.Is(err, protocol.ErrQuotaExceeded) || errors.Is(err, protocol.ErrTooLarge)) && len(ops) > 2:
			ops = ops[:2] // no quota refuses a deletion, and the request that made the record was larger
			continue
		case !errors.Is(err, zk.ErrNoNode):
			return err
		}

		// Either our own node is gone (the right to run was lost) or the record is.
		if err := g.Verify(ctx); err != nil {
			return err
		} else if now, err := o.begin(ctx, g, name); err != nil || now.done { // by hand
			return err
		}
	}
}
