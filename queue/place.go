package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/batch"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// The records of a queue are nodes below its path that are no entries:
//
//	<path>/zkrecipes/held/<owner>/<number>,<ID>   an entry that is reserved, with its data: see [claim]
//	<path>/zkrecipes/consumers/<owner>            its consumer's session, ephemeral, and the receipt of its settlements
//	<path>/zkrecipes/returned/<ID>                what is known of an entry that has come back or moved
//	<path>/zkrecipes/delayed/<bucket>/<due>,<ID>  an entry that is not due yet, with its data
//	<path>/zkrecipes/waiting/                     the line of consumers that wait
//	<path>/zkrecipes/receipts/<owner>             the receipts of producers
//	<path>/zkrecipes/offering/                    the lines of producers near the maximum length
//	<path>/zkrecipes/keys/<number>/<key>          the keys of entries that were offered with one
const (
	recordsNode   = "/zkrecipes"
	heldNode      = recordsNode + "/held"
	consumersNode = recordsNode + "/consumers"
	returnedNode  = recordsNode + "/returned"
	delayedNode   = recordsNode + "/delayed"
	waitingNode   = recordsNode + "/waiting"
	receiptsNode  = recordsNode + "/receipts"
	offeringNode  = recordsNode + "/offering"
	keysNode      = recordsNode + "/keys"
)

func returnedPath(id string) string { return returnedNode + "/" + id }
func bucketOf(due int64) string     { return delayedNode + "/" + layout.DelayedBucket(due) }

// A place is where a queue is, for any session. Nodes have a slash in front, and are below it.
type place struct {
	recipe     *protocol.Recipe
	path       string
	priorities bool // of entries: kazoo's layout
}

// The operations of a transaction have absolute paths.

func (p *place) creation(s *protocol.Session, node string, data []byte, flags int32) *zk.CreateRequest {
	path := p.path + node
	return &zk.CreateRequest{Path: s.Path(path), Data: data, Acl: p.recipe.ACL(path), Flags: flags}
}

func (p *place) deletion(s *protocol.Session, node string, version int32) *zk.DeleteRequest {
	return &zk.DeleteRequest{Path: s.Path(p.path + node), Version: version}
}

func (p *place) setting(s *protocol.Session, node string, data []byte, version int32) *zk.SetDataRequest {
	return &zk.SetDataRequest{Path: s.Path(p.path + node), Data: data, Version: version}
}

// ensure creates directories of a queue where they are missing.
func (p *place) ensure(ctx context.Context, s *protocol.Session, nodes ...string) error {
	for _, node := range nodes {
		if _, err := s.EnsurePath(ctx, p.path+node); err != nil {
			return err
		}
	}
	return nil
}

// children lists a node. One that does not exist has no children, and a nil Stat.
func (p *place) children(ctx context.Context, s *protocol.Session, node string) ([]string, *zk.Stat, error) {
	names, stat, err := s.Children(ctx, p.path+node)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil, nil
	}
	return names, stat, err
}

// deleteNode deletes a node. One that is gone is no error.
func (p *place) deleteNode(ctx context.Context, s *protocol.Session, node string, version int32) error {
	_, err := protocol.Do(ctx, s, func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, protocol.Delete(c, s.Path(p.path+node), version)
	})
	return ignore(err, zk.ErrNoNode)
}

// A site is a queue under one session, for work that nobody waits for.
type site struct {
	place
	session  *protocol.Session
	claims   atomic.Int64  // of this session
	returned atomic.Bool   // an entry was put back by this session
	coming   atomic.Int32  // entries that this session is putting back
	came     chan struct{} // ready when there is one less
}

// report reports what has happened to this many entries, of any number of callers.
func (p *site) report(kind protocol.EventKind, n int, err error) {
	p.recipe.Report(protocol.Event{Kind: kind, Session: p.session.ID(), Count: n, Err: err})
}

// Start runs the goroutine of a batcher, and Err returns why the session is over: p is a
// [batch.Host].
func (p *site) Start(work func(life context.Context)) error {
	if !p.session.Go(func(life context.Context, _ *protocol.Session) { work(life) }) {
		return protocol.ErrClosed
	}
	return nil
}

func (p *site) Err() error { return p.session.Err() }

const (
	maxOps     = 1000 // of a transaction
	inParallel = 64   // requests that are sent at the same time
)

// limits are those of a transaction that serves several requests. Besides these it has a receipt and
// two checks at most.
func (p *site) limits() batch.Limits {
	beside := 3 * (len(p.session.Path(p.path)) + 200)
	return batch.Limits{Count: maxOps, Bytes: min(128<<10, p.session.RequestLimit()-beside)}
}

// wait blocks until d has passed, and returns why ctx has ended before.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return protocol.Ended(ctx)
	}
}

// gone makes WaitNode wait for the end of a node.
func gone(*zk.Stat) bool { return false }

// each calls f with all of the indices below n, with some at the same time, and returns the first
// error.
func each(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wait sync.WaitGroup
	room := make(chan struct{}, inParallel)
	for i := range n {
		room <- struct{}{}
		wait.Go(func() { errs[i] = f(i); <-room })
	}
	wait.Wait()
	return cmp.Or(errs...)
}

// ignore returns err, or nil for errors that do no harm.
func ignore(err error, harmless ...error) error {
	if slices.ContainsFunc(harmless, func(h error) bool { return errors.Is(err, h) }) {
		return nil
	}
	return err
}
