package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/batch"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// The records of a queue are nodes below its path that aren't entries:
//
//	<path>/zkrecipes/held/<owner>/<number>,<ID>   a reserved entry with its data: see [claim]
//	<path>/zkrecipes/consumers/<owner>            says that a consumer lives, and is its receipt
//	<path>/zkrecipes/returned/<ID>                the record of an entry that has come back or moved
//	<path>/zkrecipes/delayed/<bucket>/<due>,<ID>  a delayed entry with its data
//	<path>/zkrecipes/waiting/                     the line of waiting consumers
//	<path>/zkrecipes/receipts/<owner>             the receipts of producers
//	<path>/zkrecipes/offering/                    the lines of producers near the maximum length
//	<path>/zkrecipes/keys/<number>/<key>          keys of entries
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

// A place says where a queue is, in any session. Its methods take nodes below its path, with a
// leading slash.
type place struct {
	recipe     *recipe.Recipe
	path       string
	priorities bool // kazoo's layout
}

// Operations of a transaction have absolute paths.

func (p *place) creation(s *recipe.Session, node string, data []byte, flags int32) *zk.CreateRequest {
	path := p.path + node
	return &zk.CreateRequest{Path: s.Path(path), Data: data, Acl: p.recipe.ACL(path), Flags: flags}
}

func (p *place) deletion(s *recipe.Session, node string, version int32) *zk.DeleteRequest {
	return &zk.DeleteRequest{Path: s.Path(p.path + node), Version: version}
}

func (p *place) setting(s *recipe.Session, node string, data []byte) *zk.SetDataRequest {
	return &zk.SetDataRequest{Path: s.Path(p.path + node), Data: data, Version: -1}
}

// ensure creates directories of a queue if they are missing.
func (p *place) ensure(ctx context.Context, s *recipe.Session, nodes ...string) error {
	for _, node := range nodes {
		if _, err := s.EnsurePath(ctx, p.path+node); err != nil {
			return err
		}
	}
	return nil
}

// children lists a node. A node that doesn't exist has no children and a nil Stat.
func (p *place) children(ctx context.Context, s *recipe.Session, node string) ([]string, *zk.Stat, error) {
	names, stat, err := s.Children(ctx, p.path+node)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil, nil
	}
	return names, stat, err
}

// deleteNode deletes a node. If the node is already gone, that is no error.
func (p *place) deleteNode(ctx context.Context, s *recipe.Session, node string) error {
	_, err := recipe.Do(ctx, s, func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, recipe.Delete(c, s.Path(p.path+node), -1)
	})
	return ignore(err, zk.ErrNoNode)
}

// A site is a queue in one session, for work in the background.
type site struct {
	place
	session  *recipe.Session
	returned atomic.Bool // this session has put an entry back
	unswept  atomic.Bool // since the last sweep, too
	returns  int         // size of the transaction that puts back an empty entry, at most
}

// fits returns an error if data leaves no room for what a reservation adds.
func (p *site) fits(data []byte) error {
	if size, most := p.returns+len(data), p.session.RequestLimit(); size > most {
		return fmt.Errorf("%w: %d bytes with what a reservation adds, and %d are the limit", protocol.ErrTooLarge, size, most)
	}
	return nil
}

// report reports an event of n entries, of any number of callers.
func (p *site) report(kind protocol.EventKind, n int, err error) {
	p.recipe.Report(protocol.Event{Kind: kind, Session: p.session.ID(), Count: n, Err: err})
}

// Start runs the goroutine of a batcher, and Err returns why the session has ended: p is a
// [batch.Host].
func (p *site) Start(work func(life context.Context)) error {
	if !p.session.Go(func(life context.Context, _ *recipe.Session) { work(life) }) {
		return protocol.ErrClosed
	}
	return nil
}

func (p *site) Err() error { return p.session.Err() }

const (
	maxOps     = 1000      // of a transaction
	claimBytes = 512 << 10 // limit of a transaction with several entries
)

// limits returns the limits of a transaction that serves several requests. It leaves room for a
// receipt and two checks.
func (p *site) limits() batch.Limits {
	beside := 3 * (len(p.session.Path(p.path)) + 200)
	return batch.Limits{Count: maxOps, Bytes: min(128<<10, p.session.RequestLimit()-beside)}
}

// wait blocks until d has passed. If ctx ends first, it returns why.
func wait(ctx context.Context, d time.Duration) error {
	pause, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-pause.Done()
	return recipe.Ended(ctx)
}

// gone makes WaitNode wait for the end of a node.
func gone(*zk.Stat) bool { return false }

// ignore returns nil for harmless errors, and err otherwise.
func ignore(err error, harmless ...error) error {
	if slices.ContainsFunc(harmless, func(h error) bool { return errors.Is(err, h) }) {
		return nil
	}
	return err
}
