package main

import (
	"context"
	"fmt"
)

var drainChapter = chapter{"drain", "A lock with many waiters, several in each of 50 sessions", func(e *env) []work {
	var all []work
	for _, waiters := range []int{500, 2000} {
		waiters := e.few(waiters)
		w := work{
			name:   fmt.Sprintf("drain/%d", waiters),
			title:  fmt.Sprintf("%d waiters drained", waiters),
			unit:   "hand-off; the floor is a delete and its event",
			rounds: 3,
			enter: func(ctx context.Context, e *env) ([]*contestant, error) {
				return lockLines(ctx, e, waiters, e.few(50))
			},
		}
		if len(all) > 0 {
			w.goals = []goal{timesBestPeer(1.5)}
		}
		all = append(all, w)
	}
	return all
}}
