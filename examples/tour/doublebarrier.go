package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// doubleBarrier shows doublebarrier.Barrier: members come one after the other, begin together and
// end together.
func doubleBarrier(ctx context.Context, t *tour) error {
	const members = 3
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.say("  %d members come one after the other, begin at the same time, and end at the same time, though\n"+
		"  some have more to do.\n", members)
	var working sync.WaitGroup
	for i := range members {
		c, err := t.connect(ctx)
		if err != nil {
			cancel(err)
			break
		}

		working.Go(func() {
			barrier := doublebarrier.New(c, t.root+"/double", members)
			if err := cross(ctx, t, i, barrier); err != nil {
				cancel(fmt.Errorf("%s: %w", member(i), err)) // the first one counts
			}
			c.Close()
		})

		if err := sleep(ctx, t.pace/2); err != nil {
			break
		}
	}

	working.Wait()
	return context.Cause(ctx)
}

func member(i int) string { return fmt.Sprintf("member %d", i+1) }

// cross comes, works once all are here, and goes when all have finished.
func cross(ctx context.Context, t *tour, i int, b *doublebarrier.Barrier) error {
	t.tell(member(i), "comes")
	err := b.Do(ctx, func(inside context.Context) error {
		t.tell(member(i), "goes in")
		if err := sleep(inside, time.Duration(i+1)*t.pace/2); err != nil {
			return err
		}
		t.tell(member(i), "is ready to go")
		return nil
	})

	if errors.Is(err, protocol.ErrLost) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil {
		t.tell(member(i), "goes out")
	}

	return err
}
