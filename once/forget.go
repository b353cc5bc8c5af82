package once

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// forgetMost is how many keys a call forgets at most. The requests for them are sent together.
const forgetMost = 50

// forget deletes the keys that have been done for longest, if too many are remembered. What fails
// is left to the next call.
func (o *Once) forget(ctx context.Context, s *protocol.Session, remembered int) {
	if remembered <= o.keep+min(o.keep/10, forgetMost) {
		return
	}
	err := o.forgetOldest(ctx, s)
	if err != nil && !errors.Is(err, zk.ErrNoNode) && ctx.Err() == nil { // another call was faster
		o.recipe.Logger().Warn("old keys are not forgotten", "path", o.recipe.Path(), "error", err)
	}
}

func (o *Once) forgetOldest(ctx context.Context, s *protocol.Session) error {
	children, _, err := s.Children(ctx, o.orderPath())
	if err != nil {
		return err
	}

	entries := inOrder(children)
	most := min(len(entries)-o.keep, forgetMost)
	ops := o.deletions(ctx, s, entries[:max(most, 0)])
	if len(ops) > 0 {
		_, err = s.Multi(ctx, ops...)
	}
	return err
}

// inOrder returns the names below order, the oldest first. Foreign names do not count. The numbers
// cannot run out, as those of the line do so before.
func inOrder(children []string) (entries []string) {
	number := func(name string) (int32, bool) {
		_, digits, _ := strings.Cut(name, "-")
		return protocol.ParseSequence(digits)
	}
	for _, name := range children {
		if _, ok := number(name); ok {
			entries = append(entries, name)
		}
	}
	slices.SortFunc(entries, func(a, b string) int {
		x, _ := number(a)
		y, _ := number(b)
		return cmp.Or(cmp.Compare(x, y), cmp.Compare(a, b))
	})
	return entries
}

// deletions returns the operations that delete entries together with their keys. A key may have
// been deleted by hand, and done again since. Then it is younger than its first entry, which goes
// alone. Entries are never used again, so calls that forget at the same time do not meet each
// other's keys. One case is left: a key that is deleted by hand and done again between the look at
// it here and its deletion.
func (o *Once) deletions(ctx context.Context, s *protocol.Session, entries []string) []any {
	pairs := make([][]any, len(entries))
	var reads sync.WaitGroup
	for i, entry := range entries {
		reads.Go(func() {
			path := o.orderPath() + "/" + entry
			name, entered, err := s.Get(ctx, path)
			if err != nil {
				return
			}
			done, err := s.Exists(ctx, o.donePath(string(name)))
			if err != nil {
				return
			}
			pairs[i] = append(pairs[i], &zk.DeleteRequest{Path: path, Version: -1})
			if done != nil && done.Czxid == entered.Czxid { // one transaction has created both
				pairs[i] = append(pairs[i], &zk.DeleteRequest{Path: o.donePath(string(name)), Version: -1})
			}
		})
	}
	reads.Wait()
	return slices.Concat(pairs...)
}
