package semaphore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// Permits returns the number of permits at the path, or the number that was given to [New] if the
// path has none yet. It blocks until the server has answered twice or ctx ends. Its error wraps
// [ErrPermits] if the data of the path's node are not a number, or not the number of a semaphore
// [WithStrictPermits]. Other errors are ctx's, [protocol.ErrClosed] or the server's own.
func (s *Semaphore) Permits(ctx context.Context) (int, error) {
	if err := s.recipe.ValidateCall(ctx, nil); err != nil {
		return 0, err
	}
	data, err := s.number(ctx)
	if err == nil && len(data) == 0 {
		return s.permits, nil
	}

	if err == nil {
		_, err = s.blockers(data)
	}
	if err != nil {
		return 0, s.recipe.Wrap(err)
	}
	return parse(data)
}

// number returns the data of the path's node, or nil without one.
func (s *Semaphore) number(ctx context.Context) ([]byte, error) {
	path := s.recipe.Path()
	return recipe.AcrossSessions(ctx, s.recipe, func(session *recipe.Session) ([]byte, error) {
		if err := session.Sync(ctx, path); err != nil {
			return nil, err
		}

		data, _, err := session.Get(ctx, path)
		if errors.Is(err, zk.ErrNoNode) {
			err = nil
		}
		return data, err
	})
}

// Resize changes the number of permits at the path, which all processes follow, whatever number
// they were made with: one call is enough. (If the number comes from a configuration that all
// processes watch, let one of them call Resize. A late call would bring a former number back.) More
// permits let waiters in at once. After a reduction the holders keep their permits, and no
// contender gets a permit until enough of them have released. The number then stays at the path (in
// a persistent node), even when no contender is left.
//
// Resize blocks until the server has answered. It costs five requests, and each session that waits
// one read and one listing. If ctx ends, the number may have been changed or not: call Resize
// again. Of two calls at the same time one wins, and the other number does not come back. If a
// session is lost, Resize goes on in the next session. Its error wraps [ErrPermits] if the data of
// the path's node are not a number (such data are never replaced). Other errors are ctx's,
// [protocol.ErrClosed] or the server's own: Resize needs the permission to write the path's node
// and to create a child.
func (s *Semaphore) Resize(ctx context.Context, permits int) error {
	if err := cmp.Or(atLeastOne(permits), s.recipe.ValidateCall(ctx, nil)); err != nil {
		return s.recipe.Wrap(err)
	}

	r := resize{path: s.recipe.Path(), data: []byte(strconv.Itoa(permits))}
	_, err := recipe.AcrossSessions(ctx, s.recipe, func(session *recipe.Session) (none struct{}, err error) {
		return none, r.attempt(ctx, session)
	})
	return s.recipe.Wrap(err)
}

// A resize is one call of [Semaphore.Resize].
type resize struct {
	path   string
	data   []byte
	before *keeping // when the call began
}

// A keeping is a state of the keeper, a persistent child of the path's node. (Servers delete a
// container without children, and the number with it.)
type keeping struct {
	czxid   int64 // 0 without a keeper
	version int32
}

// attempt changes the number, unless this call or a later call has changed it already.
func (r *resize) attempt(ctx context.Context, s *recipe.Session) error {
	if _, err := s.EnsurePath(ctx, r.path); err != nil {
		return err
	} else if err := s.Sync(ctx, r.path); err != nil {
		return err
	}

	there, _, err := s.Get(ctx, r.path)
	if errors.Is(err, zk.ErrNoNode) {
		return recipe.Again(err)
	} else if err != nil {
		return err
	} else if _, err := parse(there); len(there) > 0 && err != nil {
		return err
	}

	keeper := r.path + "/" + layout.Keeper
	stat, err := s.Exists(ctx, keeper)
	if err != nil {
		return err
	}
	var now keeping
	if stat != nil {
		now = keeping{stat.Czxid, stat.Version}
	}

	// Each change also changes the keeper. If the keeper has changed since the call began, that was
	// this call or another call. The other call then counts as the later of the two.
	if r.before == nil || now.czxid == 0 {
		r.before = &now
	} else if now != *r.before {
		return nil
	}
	if stat != nil && bytes.Equal(there, r.data) {
		return nil
	}

	ops := []any{&zk.SetDataRequest{Path: r.path, Data: r.data, Version: -1}}
	if stat == nil {
		ops = append(ops, &zk.CreateRequest{Path: keeper})
	} else {
		ops = append(ops, &zk.SetDataRequest{Path: keeper, Version: now.version})
	}
	_, err = s.Multi(ctx, ops...)
	if errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNodeExists) || errors.Is(err, zk.ErrNoNode) {
		return recipe.Again(err) // the next round finds out whose change that was
	}
	return err
}
