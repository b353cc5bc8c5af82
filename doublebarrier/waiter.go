package doublebarrier

import (
	"context"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A Waiter is one member that has come and not left. It waits for others to come, or it is inside,
// where others may wait for it to leave.
type Waiter struct {
	Node    string    // its name, as in [Entry.Node] and [Entry.Members]
	Session int64     // its owner
	Data    []byte    // as [WithData] gave them: quote them before printing
	Since   time.Time // when it came, by the server's clock
	Inside  bool      // a round has begun with it
	Round   int64     // its round if it is inside, or the next round if it waits
	N       int       // how many members it expects in a round
}

// maxLookups is how often Waiting looks again because a round has begun or ended meanwhile.
const maxLookups = 4

// Waiting returns the members that have come and not left (inside or waiting), in order of arrival.
// It leaves out members whose sessions have ended, and members that wait for a round to end (see
// [WithWaiting]). A path that does not exist has no members. The n of this Barrier does not matter.
//
// The result is as of one moment after the call began, without members that have left since then.
// If rounds begin and end faster than the server answers, a member inside can be shown as waiting.
//
// Waiting blocks until the server has answered: four requests and one for each member. It does not
// disturb the members and costs them nothing. Its error is ctx's, wraps [protocol.ErrLost] if the
// session ends, or is an error of [Barrier.Enter] for a bad path or option, a closed client or a
// server that refuses. It is safe for concurrent use.
func (b *Barrier) Waiting(ctx context.Context) ([]Waiter, error) {
	all, err := b.waiting(ctx)
	return all, b.recipe.Wrap(err)
}

func (b *Barrier) waiting(ctx context.Context) ([]Waiter, error) {
	s, err := b.recipe.Session(ctx)
	if err == nil {
		err = s.Sync(ctx, b.recipe.Path())
	}
	if err != nil {
		return nil, err
	}

	// The line and the record are two reads, between which a round can begin or end.
	var r record
	var line []member
	for lookup := 0; ; lookup++ {
		before := r.version
		if r, err = b.read(ctx, s); err != nil {
			return nil, err
		}
		// If no round has begun or ended meanwhile, the line and this record belong together.
		if lookup > 0 && (r.version == before || lookup == maxLookups) {
			return b.waiters(ctx, s, r, line)
		}
		if line, err = b.line(ctx, s); err != nil {
			return nil, err
		}
	}
}

// waiters reads the members in line, without members that have gone.
func (b *Barrier) waiters(ctx context.Context, s *recipe.Session, r record, line []member) ([]Waiter, error) {
	all, err := recipe.ReadAll(line, func(m member) (w Waiter, err error) {
		data, stat, err := s.Get(ctx, b.member(m.Node))
		if err != nil {
			return w, err
		}

		w = Waiter{
			Node: m.Node, Session: stat.EphemeralOwner, Data: data, Since: time.UnixMilli(stat.Ctime),
			Inside: r.gate.has(m.Node), Round: r.Rounds, N: m.Size,
		}
		if !w.Inside {
			w.Round++
		}
		return w, nil
	})
	if err != nil {
		return nil, err
	}

	return slices.DeleteFunc(all, func(w Waiter) bool { return w.Node == "" }), nil
}
