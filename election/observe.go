package election

import (
	"context"
	"errors"
	"iter"
	"time"
)

// ErrNoLeader is returned by [Election.Leader] when nobody leads.
var ErrNoLeader = errors.New("no leader")

// A Leader is what others know of the leader.
type Leader struct {
	Value []byte // what it campaigned with, or proclaimed last
	Token int64  // its fencing token; 0 if there is no leader
}

// Vacant tells whether there is no leader.
func (l Leader) Vacant() bool { return l.Token == 0 }

// A Candidate is one node in line for an election: the leader's, or that of somebody who waits.
type Candidate struct {
	Node    string    // its name below the election's path
	Session int64     // its owner
	Token   int64     // its czxid: the fencing token that its owner has or will have
	Value   []byte    // what it campaigned with, or proclaimed last
	Since   time.Time // its creation, by the server's clock
}

// Leader returns the leader as of a moment after the call began: who was elected before that is not passed over in favour
// of one who led earlier. That is who stands first in line; it may not have noticed yet, or, if it has died, not have
// expired yet. Leader blocks until the server has answered three times, and waits for the next session if it has to.
// It returns an error that wraps [ErrNoLeader] if nobody leads, ctx's error, [protocol.ErrClosed], [zk.ErrInvalidPath],
// or what the server said. It is safe for concurrent use.
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

// Observe yields the leader, as [Election.Leader] returns it, or a vacant Leader if there is none, and then every change:
// another leader, another value, or a vacancy. What lasts for less than a message takes is passed over, and so is
// what comes and goes while there is no connection; what is yielded last is what lasts. One who is slow to ask for the
// next change gets the newest.
//
// It blocks between changes, also while the session is suspended, and goes on in the next session if that is lost. It
// ends when the loop does, or with an error, which is yielded last with a vacant Leader: ctx's, if ctx ends, one that
// wraps [protocol.ErrClosed] or [zk.ErrInvalidPath], or what the server said. What it yields may be kept but not changed. It may be ranged over
// several times, and concurrently; all loops of a client share one watch on the leader's node.
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

// Candidates returns everybody who stands for election, the leader first, as of a moment after the call began. An
// election without candidates has none. It blocks until the server has answered, with one request for each of
// them, or ctx ends. It returns ctx's error, an error that wraps [protocol.ErrLost] if the session ends, or what the server said.
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

// Break deletes the node of a candidate, by its name in [Election.Candidates]: an operator's way to move the leadership.
// A leader's term is lost then, and it is told, but it may be about to act as the leader all the same: let its token guard
// what it does. One who waits goes to the end of the line. Break blocks until the server has answered or ctx ends. It
// returns an error that wraps [zk.ErrNoNode] if there is no such node.
//
// [zk.ErrNoNode]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoNode
func (e *Election) Break(ctx context.Context, node string) error {
	if e.err != nil {
		return e.wrap(e.err)
	}
	return e.wrap(e.line.Break(ctx, node))
}
