package semaphore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
)

// check compares the number of permits with the one at the path: that of the latest limit, or else of the
// first contender.
func (s *Semaphore) check(names []line.Name) error {
	here, there := int(s.permits.Load()), 0
	if len(names) > 0 {
		there = numberOf(names[0])
	}
	if i := latestLimit(names); i >= 0 {
		there = numberOf(names[i])
	}
	if there == 0 || there == here || s.resizing.Load() > 0 {
		return nil
	}
	return fmt.Errorf("%w: %d here, %d at the path", ErrPermits, here, there)
}

// Resize changes the number of permits at the path. Each process that uses the path has to call it, or
// use the new number in [New]: from then on the others get [ErrPermits], waiters at once. Holders keep
// their permits. So after a reduction there may be more holders than permits until some have released.
//
// Resize blocks until the server has answered, with two requests for each contender, which looks again. It
// goes on in the next session if one is lost. If ctx ends, the number may have been changed at the path,
// or not: call Resize again. Resize needs the permission to write the nodes of all contenders.
func (s *Semaphore) Resize(ctx context.Context, permits int) error {
	err := atLeastOne(permits)
	if err == nil {
		_, err = protocol.AcrossSessions(ctx, s.recipe, func(session *protocol.Session) (struct{}, error) {
			return struct{}{}, s.resize(ctx, session, permits)
		})
	}
	return s.recipe.Wrap(err)
}

func (s *Semaphore) resize(ctx context.Context, session *protocol.Session, permits int) error {
	s.resizing.Add(1)
	defer s.resizing.Add(-1)

	// The latest limit counts. One that an attempt with a lost answer has left is found, and the older
	// ones are deleted, by the next attempt.
	path := s.recipe.Path()
	for agreed := false; !agreed; {
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
		agreed = latest >= 0 && numberOf(names[latest]) == permits
		var ops []any
		if !agreed {
			prefix := fmt.Sprintf("%s/%s-of-%d-limit-", path, session.NewOwner(), permits)
			ops = append(ops, &zk.CreateRequest{Path: prefix, Flags: zk.FlagSequence})
		}
		for i, n := range names {
			if isLimit(n) && (!agreed || i != latest) {
				ops = append(ops, &zk.DeleteRequest{Path: path + "/" + n.Node, Version: -1})
			}
		}
		if len(ops) == 0 {
			break
		}
		_, err = session.Multi(ctx, ops...)
		agreed = err == nil
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

var number = regexp.MustCompile(`-of-([0-9]+)-(permit|limit)-`)

// numberOf returns the number of permits in a node's name, or 0.
func numberOf(n line.Name) int {
	parts := number.FindStringSubmatch(n.Node)
	if parts == nil {
		return 0
	}
	permits, _ := strconv.Atoi(parts[1])
	return permits
}

func isLimit(n line.Name) bool { return n.Kind == "limit-" }

func latestLimit(names []line.Name) int {
	for i, n := range slices.Backward(names) {
		if isLimit(n) {
			return i
		}
	}
	return -1
}
