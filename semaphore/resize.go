package semaphore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
)

// check compares the number of permits with the one at the path: that of the latest limit, or else
// of the first contender.
func (s *Semaphore) check(names []line.Name) error {
	here, there := int(s.permits.Load()), numberAt(names)
	if there == 0 || there == here || s.resizing.Load() {
		return nil
	}
	return fmt.Errorf("%w: %d here, %d at the path", ErrPermits, here, there)
}

// numberAt returns the number of permits at the path, or 0 if there is none yet. Foreign nodes have
// no number.
func numberAt(names []line.Name) int {
	if i := latestLimit(names); i >= 0 {
		return numberOf(names[i])
	}
	for _, n := range names {
		if number := numberOf(n); number > 0 {
			return number
		}
	}
	return 0
}

// blockers returns the contenders that block the one at self.
//
// While this semaphore is resized, its own number and that at the path may differ: the smaller one
// counts.
func (s *Semaphore) blockers(names []line.Name, self int) []line.Name {
	here, there, limited := int(s.permits.Load()), numberAt(names), latestLimit(names) >= 0
	names = slices.DeleteFunc(slices.Clone(names[:self+1]), isLimit)
	self = len(names) - 1

	// A contender with another number will be refused when it looks, unless it is the first one by
	// then. So those behind it wait until it has gone.
	for i, n := range names[:self] {
		if other := numberOf(n); !limited && other != 0 && other != here {
			return names[i : i+1]
		}
	}
	if there != 0 {
		here = min(here, there)
	}
	return line.Permits(here)(names, self)
}

// Resize changes the number of permits at the path. Each process that uses the path has to call it,
// or use the new number in [New]: from then on the others get [ErrPermits], waiters at once.
// Holders keep their permits. So after a reduction there may be more holders than permits until
// some have released.
//
// The number stays at the path, in a persistent node, also when no contender is left. So from then
// on another number in New is refused until the next Resize, or until that node is deleted by hand.
//
// Resize blocks until the server has answered, with two requests for each contender, which looks
// again. It goes on in the next session if one is lost. If ctx ends, the number may have been
// changed at the path, or not: call Resize again. Resize needs the permission to write the nodes of
// all contenders.
func (s *Semaphore) Resize(ctx context.Context, permits int) error {
	if err := cmp.Or(atLeastOne(permits), s.recipe.ValidateCall(ctx, nil)); err != nil {
		return s.recipe.Wrap(err)
	}
	select {
	case s.resizes <- struct{}{}:
		defer func() { <-s.resizes }()
	case <-ctx.Done():
		return s.recipe.Wrap(protocol.Wanted(ctx))
	}

	s.resizing.Store(true)
	defer s.resizing.Store(false)
	_, err := protocol.AcrossSessions(ctx, s.recipe, func(session *protocol.Session) (struct{}, error) {
		return struct{}{}, s.resize(ctx, session, permits)
	})
	return s.recipe.Wrap(err)
}

func (s *Semaphore) resize(ctx context.Context, session *protocol.Session, permits int) error {
	// The latest limit counts. One that an attempt with a lost answer has left is found by the next
	// listing, and so the last listing has no more than one.
	path := s.recipe.Path()
	for agreed := false; ; {
		if _, err := session.EnsurePath(ctx, path); err != nil {
			return err
		} else if err := session.Sync(ctx, path); err != nil {
			return err
		}
		names, err := s.line.Names(ctx, session)
		if err != nil {
			return err
		}

		latest := latestLimit(names)
		agreed = agreed || latest >= 0 && numberOf(names[latest]) == permits
		var ops []any
		if !agreed {
			prefix := fmt.Sprintf("%s/%s-of-%d-limit-", path, session.NewOwner(), permits)
			ops = append(ops, &zk.CreateRequest{Path: prefix, Flags: zk.FlagSequence})
		}
		for i, n := range names {
			if hasLimit(n) && (!agreed || i != latest) {
				ops = append(ops, &zk.DeleteRequest{Path: path + "/" + n.Node, Version: -1})
			}
		}
		if len(ops) == 0 {
			break
		}
		_, err = session.Multi(ctx, ops...)
		agreed = agreed || err == nil
		if err != nil && !errors.Is(err, zk.ErrNoNode) { // another client was faster, or an attempt of ours
			return err
		}
	}
	s.permits.Store(int64(permits))

	// A change of its own node makes each contender look again.
	contenders, err := s.Contenders(ctx)
	for _, c := range contenders {
		if _, failed := session.Set(ctx, path+"/"+c.Node, c.Data, -1); !errors.Is(failed, zk.ErrNoNode) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// numberOf returns the number of permits in a node's name, or 0.
func numberOf(n line.Name) int {
	head, _, _ := strings.Cut(n.Node, "-"+n.Kind)
	_, digits, _ := strings.Cut(head, "-of-")
	permits, _ := strconv.Atoi(digits)
	return max(permits, 0)
}

func isLimit(n line.Name) bool { return n.Kind == "limit-" }

// hasLimit reports whether the node is one of Resize, and no foreign one with such a name.
func hasLimit(n line.Name) bool { return isLimit(n) && numberOf(n) > 0 }

func latestLimit(names []line.Name) int {
	for i, n := range slices.Backward(names) {
		if hasLimit(n) {
			return i
		}
	}
	return -1
}
