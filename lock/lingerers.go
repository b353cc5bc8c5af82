package lock

import (
	"container/list"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// lookAgain is how often the nodes and their lines are read again, in case an event is missing.
const lookAgain = time.Minute

// lingerers are the nodes of a session, and a view, that linger. It is safe for concurrent use.
type lingerers struct {
	mu      sync.Mutex // protects what follows; nothing blocks while it is held
	all     map[*kept]struct{}
	unused  list.List // of *kept: the one that was used first comes first
	looking bool      // a goroutine looks at them
}

type lingerersKey struct{}

func lingerersOf(s *protocol.Session) *lingerers {
	return protocol.Shared(s, lingerersKey{}, func() *lingerers { return &lingerers{all: make(map[*kept]struct{})} })
}

// add has the node looked at after each reconnect, and once a minute.
func (ls *lingerers) add(k *kept) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.all[k] = struct{}{}
	if !ls.looking {
		ls.looking = k.session.Go(ls.look)
	}
}

func (ls *lingerers) remove(k *kept) {
	ls.rest(k, false)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.all, k)
}

// rest notes whether the node is unused from now on.
func (ls *lingerers) rest(k *kept, unused bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if k.place != nil {
		ls.unused.Remove(k.place)
		k.place = nil
	}
	if unused {
		k.place = ls.unused.PushBack(k)
	}
}

// excess returns the node that was not used for longest if there are more than n.
func (ls *lingerers) excess(n int) *kept {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.unused.Len() <= n {
		return nil
	}
	return ls.unused.Front().Value.(*kept)
}

// look asks the server again whether the lines or the nodes have changed. If an event is missing, that
// makes up for it.
func (ls *lingerers) look(ctx context.Context, s *protocol.Session) {
	ticker := time.NewTicker(lookAgain)
	defer ticker.Stop()
	resumed := s.Resumption()
	for {
		select {
		case <-ticker.C:
		case <-resumed:
		case <-ctx.Done():
			return
		}
		resumed = s.Resumption()

		ls.mu.Lock()
		all := slices.Collect(maps.Keys(ls.all))
		ls.looking = len(all) > 0
		ls.mu.Unlock()
		if len(all) == 0 {
			return
		}
		for _, k := range all {
			for _, w := range []*protocol.Watch{s.WatchChildren(k.linger.recipe.Path()), s.Watch(k.node)} {
				if _, err := w.Ready(ctx); err == nil {
					w.Recheck(ctx)
				}
			}
		}
	}
}
