package lock

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// lookAgain is how often the nodes and their lines are read again, in case an event is missing.
const lookAgain = time.Minute

// lingerers are the nodes of a session, and a view, that linger. It is safe for concurrent use.
type lingerers struct {
	mu      sync.Mutex // nothing blocks while it is held
	all     list.List  // of *kept, the least recently used first
	looking bool       // a goroutine looks at them
}

// A lingerersKey is the key of a session's lingerers for [recipe.Shared].
type lingerersKey struct{}

// add adds a node. If there are more than most then, it removes the least recently used node and
// returns it.
func (ls *lingerers) add(k *kept, most int) (excess []*kept) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	k.place = ls.all.PushBack(k)
	if !ls.looking {
		ls.looking = k.session.Go(ls.look)
	}
	if k.session.EphemeralBytes() > 750_000 { // from twice as many on, no recipe can create a node
		most = 1
	}
	for ls.all.Len() > most {
		excess = append(excess, ls.all.Remove(ls.all.Front()).(*kept))
	}
	return excess
}

// use notes that a node is used now.
func (ls *lingerers) use(k *kept) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.all.MoveToBack(k.place)
}

func (ls *lingerers) remove(k *kept) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.all.Remove(k.place)
}

// look runs while there are nodes. Once a minute it asks the server whether they or their lines
// have changed. After a reconnect it has all of them given back, because events may be missing.
func (ls *lingerers) look(ctx context.Context, s *recipe.Session) {
	ticker := time.NewTicker(lookAgain)
	defer ticker.Stop()
	for resumed := s.Resumption(); ; {
		cut := false
		select {
		case <-ticker.C:
		case <-resumed:
			resumed, cut = s.Resumption(), true
		case <-ctx.Done():
			return
		}

		all := ls.list()
		if len(all) == 0 {
			return
		}
		for _, k := range all {
			if cut {
				k.linger.limit(k, 0)
			} else {
				k.recheck(ctx, s)
			}
		}
	}
}

// list returns the nodes. If there are none, look ends.
func (ls *lingerers) list() (all []*kept) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for e := ls.all.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*kept))
	}
	ls.looking = len(all) > 0
	return all
}
