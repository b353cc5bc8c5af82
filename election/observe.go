package election

import (
	"context"
	"errors"
	"iter"
	"time"
)

// ErrNoLeader is returned by [Election.Leader] when there is no leader.
var ErrNoLeader = errors.New("no leader")

// A Leader describes the leader to others.
type Leader struct {
	Value []byte // what it campaigned with, or proclaimed last
	Token int64  // its fencing token; 0 if there is no leader
}

// Vacant reports whether there is no leader.
func (l Leader) Vacant() bool { return l.Token == 0 }

// A Candidate is one node in line for an election, the leader's or a waiter's.
type Candidate struct {
	Node    string    // its name below the election's path
	Session int64     // its owner
	Token   int64     // its czxid: the fencing token that its owner has or will have
	Value   []byte    // what it campaigned with, or proclaimed last
	Since   time.Time // its creation, by the server's clock
}

// Leader returns the leader as of a moment after the call began: never an earlier leader than the
// one elected by then. The leader is the first candidate in line. It may not have noticed yet, or
// it may have died without having expired yet.
//
// Leader blocks until the server has answered three times, or ctx ends, and waits for the next
// session if it has to. Its error wraps [ErrNoLeader] if there is no leader, ctx's error,
// [protocol.ErrClosed] or [zk.ErrInvalidPath], or is the server's own. It is safe for concurrent
// use.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	if e.err != nil {
		return Leader{}, e.wrap(e.err)
	}
	first, found, err := e.line.First(ctx)
	if err == nil && !found {
		err = ErrNoLeader
	}
	if err != nil {
		return Leader{}, e.wrap(err)
	}
	return Leader{first.Data, first.Token}, nil
}

// Observe yields the leader, as [Election.Leader] returns it, or a vacant Leader if there is none.
// Then it yields every change: another leader, another value, or a vacancy. Changes that last for
// less than a message takes are passed over, and so are those that come and go while there is no
// connection. The last Leader yielded is the one that lasts. A loop that is slow to ask for the
// next change gets the newest.
//
// Observe blocks between changes, also while the session is suspended, and goes on in the next
// session if that is lost. It ends when the loop does, or with an error, which is yielded last with
// a vacant Leader. The error is ctx's, wraps [protocol.ErrClosed] or [zk.ErrInvalidPath], or is the
// server's own.
//
// The caller may keep but not change what is yielded. The sequence may be ranged over several
// times, and concurrently: all loops of a client share one watch on the leader's node.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if e.err != nil {
			yield(Leader{}, e.wrap(e.err))
			return
		}
		for first, err := range e.line.Firsts(ctx) {
			if !yield(Leader{first.Data, first.Token}, e.wrap(err)) {
				return
			}
		}
	}
}

// Candidates returns the candidates in line, the leader first, as of a moment after the call began.
// An election without candidates has none. It blocks until the server has answered, with one
// request for each of them, or ctx ends. Its error is ctx's, wraps [protocol.ErrLost] if the
// session ends, or is the server's own.
func (e *Election) Candidates(ctx context.Context) ([]Candidate, error) {
	if e.err != nil {
		return nil, e.wrap(e.err)
	}
	line, err := e.line.Standings(ctx)
	if err != nil {
		return nil, e.wrap(err)
	}
	all := make([]Candidate, len(line))
	for i, s := range line {
		all[i] = Candidate{s.Name.Node, s.Session, s.Token, s.Data, s.Since}
	}
	return all, nil
}

// Break deletes the node of a candidate, given its name in [Election.Candidates]: an operator's way
// to move the leadership. A leader then loses its term, and learns of it. It may still be about to
// act as the leader: guard what it does with its token. A waiting candidate goes to the end of the
// line.
//
// Break blocks until the server has answered or ctx ends. Its error wraps [zk.ErrNoNode] if there
// is no such node.
//
// [zk.ErrNoNode]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoNode
func (e *Election) Break(ctx context.Context, node string) error {
	if e.err != nil {
		return e.wrap(e.err)
	}
	return e.wrap(e.line.Break(ctx, node))
}
