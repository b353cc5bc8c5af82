package once

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
)

// forget deletes the keys that have been done for longest, if too many are remembered, or for too
// long. dir is the Stat of the node above the records. What fails is left to a later call.
func (o *Once) forget(ctx context.Context, s *protocol.Session, dir *zk.Stat) {
	if dir == nil || int(dir.NumChildren) <= o.keep+o.keep/10 && !o.sweeps(dir) {
		return
	}
	err := o.forgetOldest(ctx, s, dir.Mtime)
	faster := errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion) // another call was
	if err != nil && !faster && ctx.Err() == nil {
		o.recipe.Logger().Warn("old keys are not forgotten", "path", o.recipe.Path(), "error", err)
	}
}

// sweeps reports whether it is time to look for keys that are too old (ten times in a retention).
func (o *Once) sweeps(dir *zk.Stat) bool {
	last := o.swept.Load()
	return o.retention > 0 && dir.Mtime-last > o.retention.Milliseconds()/10 && o.swept.CompareAndSwap(last, dir.Mtime)
}

func (o *Once) forgetOldest(ctx context.Context, s *protocol.Session, now int64) error {
	records, _ := o.records(ctx, s) // a record that cannot be read now stays for a later call
	calls, err := o.line.Names(ctx, s)
	if err != nil {
		return err
	}
	excess := len(records) - o.keep
	records = slices.DeleteFunc(records, func(r record) bool { // it is about to run
		return slices.ContainsFunc(calls, func(call line.Name) bool { return callOf(call) == r.name })
	})
	slices.SortFunc(records, func(a, b record) int { return cmp.Compare(a.stat.Pzxid, b.stat.Pzxid) }) // since when it is done
	var old []string
	var newest int64 // of them
	for i, r := range records {
		if i < excess || o.retention > 0 && now-r.stat.Mtime > o.retention.Milliseconds() {
			old, newest = append(old, r.name), r.stat.Pzxid
		}
	}

	for chunk := range slices.Chunk(old, 100) {
		// A key that was forgotten meanwhile, and has run again, has another record, which stays.
		// Each new record changes the directory.
		dir, err := s.Exists(ctx, o.donesPath())
		if err != nil || dir == nil {
			return err
		}
		ops := []any{&zk.SetDataRequest{Path: o.donesPath(), Version: dir.Version}}
		again, _ := o.read(ctx, s, chunk)
		for _, r := range again {
			if r.stat.Pzxid <= newest {
				ops = append(ops, o.deletion(r)...)
			}
		}
		if _, err := s.Multi(ctx, ops...); err != nil {
			return err
		}
	}
	return nil
}

// deletion is how a record is deleted.
func (o *Once) deletion(r record) (ops []any) {
	if r.stat.NumChildren > 0 {
		ops = append(ops, &zk.DeleteRequest{Path: o.openPath(r.name), Version: -1})
	}
	return append(ops, &zk.DeleteRequest{Path: o.donePath(r.name), Version: -1})
}

// A record is that of a key, as it was read.
type record struct {
	name string // the escaped key
	data []byte
	stat *zk.Stat
}

// records reads all records, in order of their names.
func (o *Once) records(ctx context.Context, s *protocol.Session) ([]record, error) {
	names, _, err := s.Children(ctx, o.donesPath())
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	slices.Sort(names)
	return o.read(ctx, s, names)
}

// read reads records, many at a time. It leaves out those that are not there.
func (o *Once) read(ctx context.Context, s *protocol.Session, names []string) ([]record, error) {
	all, errs := make([]record, len(names)), make([]error, len(names))
	slots := make(chan struct{}, 50)
	var reading sync.WaitGroup
	for i, name := range names {
		slots <- struct{}{}
		reading.Go(func() {
			defer func() { <-slots }()
			data, stat, err := s.Get(ctx, o.donePath(name))
			if err == nil {
				all[i] = record{name, data, stat}
			} else if !errors.Is(err, zk.ErrNoNode) {
				errs[i] = err
			}
		})
	}
	reading.Wait()
	return slices.DeleteFunc(all, func(r record) bool { return r.stat == nil }), errors.Join(errs...)
}

// Done reports whether a key is done, as of a moment after the call began. It blocks until the
// server has answered twice or ctx ends. Its error is ctx's, wraps [protocol.ErrClosed], or is the
// server's own.
func (o *Once) Done(ctx context.Context, key string) (bool, error) {
	name, err := o.name(ctx, key)
	if err != nil {
		return false, err
	}
	done, err := protocol.AcrossSessions(ctx, o.recipe, func(s *protocol.Session) (bool, error) {
		if err := s.Sync(ctx, o.recipe.Path()); err != nil {
			return false, err
		}
		return o.isDone(ctx, s, name)
	})
	return done, o.recipe.Wrap(err)
}

// Forget lets a key run again. It is no error if the key is not known. A run in progress goes on
// and makes the key done.
//
// Forget blocks until the server has answered or ctx ends. It lists the keys that are done. Its
// error is ctx's, wraps [protocol.ErrClosed], or is the server's own.
func (o *Once) Forget(ctx context.Context, key string) error {
	name, err := o.name(ctx, key)
	if err != nil {
		return err
	}
	_, err = protocol.AcrossSessions(ctx, o.recipe, func(s *protocol.Session) (none struct{}, err error) {
		if err := s.Sync(ctx, o.recipe.Path()); err != nil {
			return none, err
		}
		stat, err := s.Exists(ctx, o.donePath(name))
		if err != nil || stat == nil {
			return none, err
		}
		_, err = s.Multi(ctx, o.deletion(record{name: name, stat: stat})...)
		if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNotEmpty) {
			err = protocol.Again(err) // another call was faster, or an attempt of ours
		}
		return none, err
	})
	return o.recipe.Wrap(err)
}

// A Key is a key that is done.
type Key struct {
	Name  string    `json:"-"`
	Done  time.Time `json:"done,omitzero"` // when, by the server's clock
	Host  string    `json:"host"`          // where it ran; empty if the key was made done by hand, as all that follows
	PID   int       `json:"pid"`
	Node  string    `json:"node"`  // of the call that ran
	Token int64     `json:"token"` // its fencing token
}

// Keys yields the keys that are done, in order of their names, as of a moment after the loop began.
// A key that is done or forgotten meanwhile may be among them or not. It blocks until the server
// has answered, with one request for each key, many at a time. It ends with the loop, or with an
// error, which it yields last: ctx's, an error that wraps [protocol.ErrClosed], or the
// server's own. The sequence can be ranged over several times and concurrently.
func (o *Once) Keys(ctx context.Context) iter.Seq2[Key, error] {
	return func(yield func(Key, error) bool) {
		var records []record
		err := o.recipe.ValidateCall(ctx, nil)
		if err == nil {
			records, err = protocol.AcrossSessions(ctx, o.recipe, func(s *protocol.Session) ([]record, error) {
				if err := s.Sync(ctx, o.recipe.Path()); err != nil {
					return nil, err
				}
				return o.records(ctx, s)
			})
		}
		if err != nil {
			yield(Key{}, o.recipe.Wrap(err))
			return
		}
		for _, r := range records {
			if r.stat.NumChildren > 0 {
				continue
			}
			var key Key
			json.Unmarshal(r.data, &key) // made by hand, it may say anything
			key.Name, key.Done = layout.Unescape(r.name), time.UnixMilli(r.stat.Mtime)
			if !yield(key, nil) {
				return
			}
		}
	}
}

// WithRetention limits how long a done key is remembered (by default only [WithKeep] does). When
// another key is done, older keys are forgotten, at most ten times in d for each process. So a key
// can be remembered for longer.
func WithRetention(d time.Duration) Option {
	return func(o *Once) error {
		if d <= 0 {
			return errors.New("WithRetention needs a positive duration")
		}
		o.retention = d
		return nil
	}
}
