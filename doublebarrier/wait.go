package doublebarrier

import (
	"context"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// waitFor blocks until the watch fires, or for a third of a session timeout. It reports whether
// that has passed: the wait is long from then on. Once it is long, waitFor watches another node as
// well, and returns [zk.ErrNoNode] if that is gone already. It makes no requests while it waits.
func waitFor(ctx context.Context, s *recipe.Session, watch *recipe.Watch, long bool, node string) (nowLong bool, err error) {
	if long {
		other := s.Watch(node)
		if _, err := other.Ready(ctx); err != nil {
			return true, err
		}
		return true, s.WaitAny(ctx, watch, other)
	}

	soon, cancel := context.WithTimeout(ctx, s.Timeout()/3)
	defer cancel()
	err = s.WaitAny(soon, watch)
	if err != nil && soon.Err() != nil && ctx.Err() == nil && s.Err() == nil {
		return true, nil
	}
	return false, err
}
