package queue

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// Keys are nodes in numbered directories. A new key goes into the latest directory, and must not be
// in the directory before. The version of their parent says which directory is the latest. Once
// that directory is old enough, a next one begins, and the directory before the latest is deleted
// with all its keys. A transaction with keys checks the parent's version, so all producers agree on
// the latest directory.
type keys struct {
	*site
	retention time.Duration
	// known reports whether the fields below are valid.
	known  bool
	number int32 // of the latest directory, which is the parent's version plus one
	// began is when the directory became the latest, by the servers' clock (in milliseconds). (It
	// can be older, because its creator can die before it says so.)
	began int64
}

const (
	maxKey       = 1000
	keyRetention = time.Hour
)

func keyDir(number int32) string { return keysNode + "/" + strconv.Itoa(int(number)) }

// remember returns the operations that remember a key. They fail if it is remembered already.
func (k *keys) remember(key string) []any {
	name := "/" + layout.Escape(key)
	before := keyDir(k.number-1) + name
	return []any{
		k.creation(k.session, keyDir(k.number)+name, nil, 0),
		k.creation(k.session, before, nil, 0), k.deletion(k.session, before, -1),
	}
}

// look reads which directory is the latest, and creates it and the directory before if they are
// missing.
func (k *keys) look(life context.Context) error {
	parent, err := k.session.Exists(life, k.path+keysNode)
	if err != nil {
		return err
	} else if parent == nil {
		// The next round looks again.
		return k.ensure(life, k.session, keysNode)
	}

	k.number = parent.Version + 1
	err = k.ensure(life, k.session, keyDir(k.number-1), keyDir(k.number))
	k.known, k.began = err == nil, parent.Mtime
	return err
}

// roll begins the next directory in the background, if it is time. now is the servers' clock (in
// milliseconds).
func (k *keys) roll(now int64) {
	if now-k.began < k.retention.Milliseconds() {
		return
	}

	// The next offer with a key reads the number again.
	k.known = false
	number := k.number
	k.session.Go(func(life context.Context, work *recipe.Session) {
		if k.ensure(life, work, keyDir(number+1)) != nil {
			return
		}

		if _, err := work.Set(life, k.path+keysNode, nil, number-1); err != nil {
			// Another session was faster.
			return
		}

		k.forget(life, work, number)
	})
}

// forget deletes all directories before the given number.
func (k *keys) forget(life context.Context, work *recipe.Session, number int32) {
	all, _, _ := k.children(life, work, keysNode)
	for _, name := range all {
		dir := keysNode + "/" + name
		if n, err := strconv.ParseInt(name, 10, 32); err != nil || int32(n) >= number {
			continue
		}

		below, _, _ := k.children(life, work, dir)
		most := max(1, work.RequestLimit()/(len(work.Path(k.path+dir))+3*maxKey+100)) // for escaped keys
		// Errors don't matter here: the next roll tries again.
		for chunk := range slices.Chunk(below, most) {
			var ops []any
			for _, key := range chunk {
				ops = append(ops, k.deletion(work, dir+"/"+key, -1))
			}
			recipe.Do(life, work, func(c *zk.Conn) ([]zk.MultiResponse, error) { return recipe.Multi(c, ops...) })
		}

		k.deleteNode(life, work, dir)
	}
}

// offered reports whether a key is remembered.
func (k *keys) offered(life context.Context, key string) (bool, error) {
	if key == "" {
		return false, nil
	}
	// A key is at least one retention old when its directory goes, so two directories are enough.
	for _, number := range []int32{k.number, k.number - 1} {
		stat, err := k.session.Exists(life, k.path+keyDir(number)+"/"+layout.Escape(key))
		if err != nil || stat != nil {
			return stat != nil, err
		}
	}
	return false, nil
}
