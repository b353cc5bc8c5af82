package election

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// ErrNoLeader is returned by [Election.Leader] when there is no leader.
var ErrNoLeader = errors.New("no leader")

// A Leader describes the leader to others.
type Leader struct {
	Value   []byte // given to Campaign, or to the last Proclaim
	Token   int64  // its fencing token; 0 if there is no leader
	Node    string // its name below the election's path, as in [Candidate]
	Session int64  // its owner
}

func leaderOf(node string, data []byte, stat *zk.Stat) Leader {
	return Leader{Value: data, Token: stat.Czxid, Node: node, Session: stat.EphemeralOwner}
}

// Vacant reports whether there is no leader.
func (l Leader) Vacant() bool { return l.Token == 0 }

func (l Leader) same(other Leader) bool {
	return l.Token == other.Token && bytes.Equal(l.Value, other.Value)
}

// A Candidate is one node in line for an election, the leader's or a waiter's.
type Candidate struct {
	Node    string    // its name below the election's path
	Session int64     // its owner
	Token   int64     // its czxid: the fencing token that its owner has or will have
	Value   []byte    // given to Campaign, or to the last Proclaim
	Since   time.Time // its creation, by the server's clock
}

// Leader returns the leader as of a moment after the call began. (The answer can be older if the
// server follows a deposed leader: see [recipe.Session.Sync].) The leader is the first candidate
// in line. It may not have noticed yet, or it may be dead and not have expired yet.
//
// Leader blocks until the server has answered three times or ctx ends. If there is no session, it
// waits for the next. If there is no leader, its error wraps [ErrNoLeader]. Other errors wrap ctx's
// error, [protocol.ErrClosed] or [zk.ErrInvalidPath] (or are the server's own). It is safe for
// concurrent use.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	leader, err := recipe.AcrossSessions(ctx, e.recipe, func(s *recipe.Session) (Leader, error) {
		return e.first(ctx, s)
	})
	return leader, e.recipe.Wrap(err)
}

// first reads the first candidate in line.
func (e *Election) first(ctx context.Context, s *recipe.Session) (Leader, error) {
	if err := s.Sync(ctx, e.recipe.Path()); err != nil {
		return Leader{}, err
	}
	for {
		names, err := e.line.Names(ctx, s)
		if err != nil {
			return Leader{}, err
		} else if len(names) == 0 {
			return Leader{}, ErrNoLeader
		}
		for _, n := range names {
			data, stat, err := s.Get(ctx, e.recipe.Path()+"/"+n.Node)
			if err == nil {
				return leaderOf(n.Node, data, stat), nil
			} else if !errors.Is(err, zk.ErrNoNode) {
				return Leader{}, err
			} else if n.Replaceable() {
				break // for another node, which is not in the listing
			}
		}
	}
}

// Observe yields the leader as [Election.Leader] returns it (or a vacant Leader if there is none).
// Then it yields every change: another leader, another value, or a vacancy. It can skip changes
// that last for less than a round trip or that come and go while there is no connection. It never
// skips the last change. A slow loop gets the newest leader.
//
// Observe blocks between changes, and while the session is suspended. If a session is lost, it goes
// on in the next session. It ends with the loop or when ctx is cancelled. If it ends with an error,
// it yields the error last with a vacant Leader. The error is ctx's if its deadline has passed.
// Otherwise it wraps [protocol.ErrClosed] or [zk.ErrInvalidPath] (or is the server's own).
//
// The caller may keep a Leader but must not change it. The sequence can be ranged over several
// times and concurrently. All loops of a client share one watch and its requests (one request a
// minute between changes).
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		o := &observation{election: e, yield: func(l Leader, _ *recipe.Session) bool { return yield(l, nil) }}
		err := o.run(ctx)
		if ctx != nil && ctx.Err() != nil && !errors.Is(err, protocol.ErrClosed) {
			err = e.recipe.Wrap(recipe.Cancelled(ctx))
		}
		if !o.enough && err != nil {
			yield(Leader{}, err)
		}
	}
}

// An observation is one use of [Election.Observe], or a listener's.
type observation struct {
	election *Election
	yield    func(Leader, *recipe.Session) bool // with the session in which the leader was seen
	last     Leader
	shown    int  // how often there was something to show
	enough   bool // the loop has ended
}

// run shows the leader until the loop ends, or returns an error.
func (o *observation) run(ctx context.Context) (err error) {
	r := o.election.recipe
	for err == nil && !o.enough {
		_, err = recipe.AcrossSessions(ctx, r, func(s *recipe.Session) (struct{}, error) {
			before := o.shown
			err := o.follow(ctx, s)
			if o.shown > before && ctx.Err() == nil && s.Err() != nil && !errors.Is(err, protocol.ErrClosed) {
				err = nil // the session was of use, so the back-off begins again
			}
			return struct{}{}, err
		})
	}
	return r.Wrap(err)
}

func (o *observation) show(leader Leader, s *recipe.Session) {
	changed := o.shown == 0 || !o.last.same(leader)
	o.last = leader
	o.shown++
	if changed {
		o.enough = !o.yield(leader, s)
	}
}

// follow shows the leader for as long as the loop goes on and s lasts.
func (o *observation) follow(ctx context.Context, s *recipe.Session) error {
	f, number := o.election.join(s)
	defer f.leave()

	for !o.enough {
		leader, changed, err := f.read(ctx, number)
		if err != nil {
			return err
		}
		o.show(leader, s)
		if o.enough {
			return nil
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return recipe.Ended(ctx)
		}
	}
	return nil
}

// Candidates returns the candidates in line (the leader first) as of a moment after the call began.
// It blocks until the server has answered or ctx ends. It makes one request for each candidate. If
// the session ends, its error wraps [protocol.ErrLost]. Otherwise it is ctx's or the server's own.
func (e *Election) Candidates(ctx context.Context) ([]Candidate, error) {
	contenders, err := e.line.Contenders(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Candidate, len(contenders))
	for i, c := range contenders {
		all[i] = Candidate{Node: c.Node, Session: c.Session, Token: c.Token, Value: c.Data, Since: c.Since}
	}
	return all, nil
}

// Break deletes the node of a candidate, given its name in [Election.Candidates]: an operator's way
// to move the leadership. A leader then loses its term. It may still be about to act as the leader,
// so fence its writes. A waiting candidate goes to the end of the line. (If it came less than a
// tenth of a second ago it can win at that moment, and then loses its term as well.)
//
// Break blocks until the server has answered or ctx ends. Its error wraps [zk.ErrNoNode] if there
// is no such node.
//
// [zk.ErrNoNode]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoNode
func (e *Election) Break(ctx context.Context, node string) error { return e.line.Break(ctx, node) }
