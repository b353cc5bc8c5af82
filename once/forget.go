package once

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// forget deletes the keys that have been done for longest, if too many keys are remembered or some
// for too long. dir is the Stat of the node above the records. After a failure, a later call
// forgets.
func (o *Once) forget(ctx context.Context, s *recipe.Session, dir *zk.Stat) {
	if dir == nil || int(dir.NumChildren) <= o.keep+o.keep/10+int(o.inLine.Load()) && !o.sweeps(dir) {
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

// forgetOldest deletes the records that are too many or too old at a time of the server's clock.
func (o *Once) forgetOldest(ctx context.Context, s *recipe.Session, now int64) error {
	records, _ := o.records(ctx, s) // a record that cannot be read now stays for a later call
	calls, err := o.line.Names(ctx, s)
	if err != nil {
		return err
	}

	// A key that runs or is about to keeps its record. Of the others, the failed keys go first, and
	// then the keys in order of when they were done.
	all := len(records)
	records = slices.DeleteFunc(records, func(r record) bool {
		return slices.ContainsFunc(calls, func(call line.Name) bool { return callOf(call) == r.name })
	})
	o.inLine.Store(int64(all - len(records)))
	slices.SortFunc(records, func(a, b record) int {
		return cmp.Or(cmp.Compare(b.stat.NumChildren, a.stat.NumChildren), cmp.Compare(a.stat.Pzxid, b.stat.Pzxid))
	})
	var old []string
	var newest int64 // when the last of the old keys was done
	for i, r := range records {
		if i < len(records)-o.keep || o.retention > 0 && now-r.stat.Mtime > o.retention.Milliseconds() {
			old, newest = append(old, r.name), max(newest, r.stat.Pzxid)
		}
	}

	// Each record has two nodes at most, and a name is never longer than three times its key.
	each := 2 * (recipe.MultiSize(&zk.DeleteRequest{Path: s.Path(o.openPath(""))}) + 3*maxKey)
	for chunk := range slices.Chunk(old, min(max(s.RequestLimit()/each, 2)-1, 100)) {
		// A key that was forgotten meanwhile and has run again has a new record, which must stay.
		// Each new record changes the directory, so the transaction fails if there is another now.
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

// deletion returns the operations that delete a record.
func (o *Once) deletion(r record) (ops []any) {
	if !r.done() {
		ops = append(ops, &zk.DeleteRequest{Path: o.openPath(r.name), Version: -1})
	}
	return append(ops, &zk.DeleteRequest{Path: o.donePath(r.name), Version: -1})
}

// A record is the node of a key, as it was read.
type record struct {
	Key         // of a key that is not done: the last run
	name string // the escaped key
	stat *zk.Stat
}

func (r record) done() bool { return r.stat.NumChildren == 0 }

// records reads all records, in order of their names.
func (o *Once) records(ctx context.Context, s *recipe.Session) ([]record, error) {
	names, _, err := s.Children(ctx, o.donesPath())
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	slices.Sort(names)
	return o.read(ctx, s, names)
}

// read reads records. It leaves out records that are gone.
func (o *Once) read(ctx context.Context, s *recipe.Session, names []string) ([]record, error) {
	all, err := recipe.ReadAll(names, func(name string) (record, error) {
		data, stat, err := s.Get(ctx, o.donePath(name))
		if err != nil {
			return record{}, err
		}

		var key Key
		json.Unmarshal(data, &key) // data that were made by hand can say anything
		key.Name, key.Done = layout.Unescape(name), time.UnixMilli(stat.Mtime)
		return record{key, name, stat}, nil
	})
	return slices.DeleteFunc(all, func(r record) bool { return r.stat == nil }), err
}

// Done reports whether a key is done (as of a moment after the call began). It blocks until the
// server has answered twice or ctx ends. It returns ctx's error, an error that wraps
// [protocol.ErrClosed], or the server's own error.
func (o *Once) Done(ctx context.Context, key string) (bool, error) {
	name, err := o.name(key)
	if err != nil {
		return false, err
	}
	return synced(ctx, o, func(s *recipe.Session) (bool, error) { return o.isDone(ctx, s, name) })
}

// Forget lets a key run again. If the key is not known, that's no error. A run in progress goes on
// and makes the key done. While the server of another process lags behind, calls there still take
// the key for done.
//
// Forget blocks until the server has answered (three requests) or ctx ends. It returns the errors
// of [Once.Done].
func (o *Once) Forget(ctx context.Context, key string) error {
	name, err := o.name(key)
	if err != nil {
		return err
	}
	_, err = synced(ctx, o, func(s *recipe.Session) (none struct{}, err error) {
		stat, err := s.Exists(ctx, o.donePath(name))
		if err != nil || stat == nil {
			return none, err
		}

		_, err = s.Multi(ctx, o.deletion(record{name: name, stat: stat})...)
		if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNotEmpty) {
			err = recipe.Again(err) // another call was faster (or our own attempt, if its answer was lost)
		}
		return none, err
	})
	return err
}

// A Key is a key that is done.
type Key struct {
	Name string    `json:"name,omitempty"`
	Done time.Time `json:"done,omitzero"` // when it was done, by the server's clock

	// The run that has made the key done. If an operator has done that by hand, these are empty.
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Node  string `json:"node"`  // the name of the run's node
	Token int64  `json:"token"` // the run's fencing token
}

// Keys yields the keys that are done in order of their names. They are as of a moment after the
// loop began. A key that is done or forgotten meanwhile can be among them or not. Keys blocks until
// the server has answered (one request for each key, many at a time). It ends with the loop or with
// an error of [Once.Done], which it yields last. The sequence can be ranged over several times and
// concurrently.
func (o *Once) Keys(ctx context.Context) iter.Seq2[Key, error] {
	return func(yield func(Key, error) bool) {
		records, err := synced(ctx, o, func(s *recipe.Session) ([]record, error) { return o.records(ctx, s) })
		if err != nil {
			yield(Key{}, err)
			return
		}

		for _, r := range records {
			if r.done() && !yield(r.Key, nil) {
				return
			}
		}
	}
}

// synced calls read under one session after the other, behind a Sync.
func synced[T any](ctx context.Context, o *Once, read func(*recipe.Session) (T, error)) (T, error) {
	v, err := recipe.AcrossSessions(ctx, o.recipe, func(s *recipe.Session) (v T, err error) {
		if err := s.Sync(ctx, o.recipe.Path()); err != nil {
			return v, err
		}
		return read(s)
	})
	return v, o.recipe.Wrap(err)
}

// WithRetention limits how long a done key is remembered. (By default, only [WithKeep] limits
// that.) Old keys are forgotten when another key is done, at most ten times in d for each process.
// So a key can be remembered for longer.
func WithRetention(d time.Duration) Option {
	return func(o *Once) error {
		if d <= 0 {
			return errors.New("WithRetention needs a positive duration")
		}
		o.retention = d
		return nil
	}
}
