package queue

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// OfferKey is [Queue.Offer] of an entry with a key of the caller's choice, such as the number of an
// order. If an entry with this key was offered before, OfferKey appends nothing and returns an
// empty ID and no error, also after that entry was consumed. So it settles an [UncertainError]:
// call it again with the same key.
//
// Keys are remembered for an hour at least, or as [WithKeyRetention] says, and then deleted by the
// producers that offer with keys. Each takes some hundred bytes of every server's memory until
// then, and all of them are listed twice in that time. Offers without a key are not compared.
//
// A key has up to 1,000 bytes. If it is empty or longer, OfferKey returns an error and does no I/O.
func (q *Queue) OfferKey(ctx context.Context, key string, data []byte) (id string, err error) {
	if key == "" || len(key) > maxKey {
		err := fmt.Errorf("OfferKey with a key of %d bytes: it needs one, and may have %d", len(key), maxKey)
		return "", q.recipe.Wrap(err)
	}
	return q.offerOne(ctx, offer{prefix: q.prefix(defaultPriority), key: key}, data)
}

const (
	maxKey       = 1000
	keyRetention = time.Hour
	sweepBatch   = 100     // keys that are asked for at the same time
	sweepMost    = 100_000 // keys of one sweep
)

// keyPath returns the node of a key, below the queue's path.
func keyPath(key string) string {
	escaped := url.PathEscape(key)
	if escaped == "." || escaped == ".." { // which no node may be called
		escaped = "%2E" + escaped[1:]
	}
	return keysNode + "/" + escaped
}

// offeredBefore reports whether an offer has a key that is remembered.
func (p *producer) offeredBefore(life context.Context, o *offer) (bool, error) {
	if o.key == "" {
		return false, nil
	}
	stat, err := p.session.Exists(life, p.queue.path+keyPath(o.key))
	return stat != nil, err
}

// createKeys creates the directory of the keys. It is persistent: its version must not begin again.
func (p *producer) createKeys(life context.Context) error {
	err := p.session.Create(life, p.queue.path+keysNode, nil, zk.FlagPersistent)
	if errors.Is(err, zk.ErrNodeExists) || errors.Is(err, zk.ErrNoNode) { // the next attempt finds that out
		err = nil
	}
	return err
}

// sweep deletes old keys in the background, if that was not done lately. now is the server's clock,
// in milliseconds.
//
// Each deletion raises the version of the directory, which it has to find as it was read. So of two
// sessions that sweep at the same time one gives up, and a key that was deleted and offered again
// meanwhile is not deleted twice.
func (p *producer) sweep(now int64) {
	between := p.queue.retention / 2
	if time.Since(p.swept) < between {
		return
	}
	p.swept = time.Now()

	dir := p.queue.path + keysNode
	p.session.Go(func(life context.Context) {
		stat, err := p.session.Exists(life, dir)
		if err != nil || stat == nil || now-stat.Mtime < between.Milliseconds() {
			return // another session has begun
		}
		if stat, err = p.session.Set(life, dir, nil, stat.Version); err != nil {
			return
		}
		keys, _, err := p.session.Children(life, dir)
		if err != nil {
			return
		}

		version, before := stat.Version, stat.Mtime-p.queue.retention.Milliseconds()
		for batch := range slices.Chunk(keys[:min(len(keys), sweepMost)], sweepBatch) {
			old := p.oldKeys(life, batch, before)
			if len(old) == 0 {
				continue
			}
			old = append(old, &zk.SetDataRequest{Path: dir, Version: version})
			if _, err := p.session.Multi(life, old...); err != nil {
				return
			}
			version++
		}
	})
}

// oldKeys returns the operations that delete those of the keys that are older than a time of the
// server's clock. A key that cannot be asked for stays until the next sweep.
func (p *producer) oldKeys(life context.Context, keys []string, before int64) (ops []any) {
	stats := make([]*zk.Stat, len(keys))
	var asked sync.WaitGroup
	for i, key := range keys {
		asked.Go(func() { stats[i], _ = p.session.Exists(life, p.queue.path+keysNode+"/"+key) })
	}
	asked.Wait()

	for i, stat := range stats {
		if stat != nil && stat.Ctime < before {
			ops = append(ops, &zk.DeleteRequest{Path: p.queue.path + keysNode + "/" + keys[i], Version: -1})
		}
	}
	return ops
}
