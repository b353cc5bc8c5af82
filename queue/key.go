package queue

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// Keys are in directories with numbers. New ones go to the latest, whose number is the data of the
// directories' parent, and must not be in the one before. Once the latest is as old as keys have to
// be remembered, the next one begins, and the one before the latest is deleted with all that is in
// it. A transaction with keys checks the parent's version. So all producers agree on the directory.
type keys struct {
	*site
	retention time.Duration
	known     bool  // what follows
	number    int64 // of the latest directory
	version   int32 // of the parent
	began     int64 // when the latest was created, by the servers' clock in milliseconds
	checkedAt int   // the operation of the latest transaction that was check; -1: none
}

const (
	maxKey       = 1000
	keyRetention = time.Hour
	deletedKeys  = 500 // in one transaction
)

func keyDir(number int64) string { return keysNode + "/" + strconv.FormatInt(number, 10) }

// remember are the operations that remember a key, and fail if it is remembered already.
func (k *keys) remember(key string) []any {
	name := "/" + layout.Escape(key)
	before := keyDir(k.number-1) + name
	return []any{
		k.creation(k.session, keyDir(k.number)+name, nil, 0),
		k.creation(k.session, before, nil, 0), k.deletion(k.session, before, -1),
	}
}

// check is the operation that fails if another directory is the latest.
func (k *keys) check() any {
	return &zk.CheckVersionRequest{Path: k.session.Path(k.path + keysNode), Version: k.version}
}

// look reads which directory is the latest and makes sure that it and the one before exist.
func (k *keys) look(life context.Context) error {
	data, stat, err := k.session.Get(life, k.path+keysNode)
	if errors.Is(err, zk.ErrNoNode) {
		// It is persistent: its version must not begin again.
		err = k.session.Create(life, k.path+keysNode, []byte("1"), zk.FlagPersistent)
		if errors.Is(err, zk.ErrNoNode) { // all records were deleted just now
			if err = k.ensure(life, k.session, recordsNode); err == nil {
				return k.look(life)
			}
		}
		if err == nil || errors.Is(err, zk.ErrNodeExists) {
			data, stat, err = k.session.Get(life, k.path+keysNode)
		}
	}
	if err != nil {
		return err
	}
	if k.number, err = strconv.ParseInt(string(data), 10, 64); err != nil {
		// It was deleted, and came back as the parent of a directory.
		_, err := k.session.Set(life, k.path+keysNode, []byte("1"), stat.Version)
		if ignore(err, zk.ErrBadVersion) != nil {
			return err
		}
		return k.look(life)
	}
	k.version = stat.Version
	if err := k.ensure(life, k.session, keyDir(k.number-1), keyDir(k.number)); err != nil {
		return err
	}
	latest, err := k.session.Exists(life, k.path+keyDir(k.number))
	if err == nil && latest != nil {
		k.known, k.began = true, latest.Ctime
	}
	return err
}

// roll begins the next directory, in the background, if it is time. now is the servers' clock, in
// milliseconds.
func (k *keys) roll(now int64) {
	if now-k.began < k.retention.Milliseconds() {
		return
	}
	k.known = false // and read anew by the next offer
	number, version := k.number, k.version
	k.session.Go(func(life context.Context, work *recipe.Session) {
		next := strconv.FormatInt(number+1, 10)
		if k.ensure(life, work, keyDir(number+1)) != nil {
			return
		}
		if _, err := work.Set(life, k.path+keysNode, []byte(next), version); err != nil {
			return // another session was faster
		}
		k.forget(life, work, number)
	})
}

// forget deletes all directories before the one with that number.
func (k *keys) forget(life context.Context, work *recipe.Session, number int64) {
	all, _, _ := k.children(life, work, keysNode)
	for _, name := range all {
		dir := keysNode + "/" + name
		if n, err := strconv.ParseInt(name, 10, 64); err != nil || n >= number {
			continue
		}
		below, _, _ := k.children(life, work, dir)
		for chunk := range slices.Chunk(below, deletedKeys) {
			var ops []any
			for _, key := range chunk {
				ops = append(ops, k.deletion(work, dir+"/"+key, -1))
			}
			recipe.Do(life, work, func(c *zk.Conn) ([]zk.MultiResponse, error) { return recipe.Multi(c, ops...) })
		}
		k.deleteNode(life, work, dir, -1)
	}
}

// offered reports whether a key is remembered.
func (k *keys) offered(life context.Context, key string) (bool, error) {
	if key == "" {
		return false, nil
	}
	for _, number := range []int64{k.number, k.number - 1} {
		stat, err := k.session.Exists(life, k.path+keyDir(number)+"/"+layout.Escape(key))
		if err != nil || stat != nil {
			return stat != nil, err
		}
	}
	return false, nil
}
