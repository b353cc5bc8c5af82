package main

func init() {
	mutations = append(mutations, []mutation{
		// The election.
		{
			Name: "election: the node is given up before the work is over",
			File: "election/election.go",
			Old:  "done := protocol.Scope(ctx, t.Grant, func(held context.Context) error {",
			New:  "done := protocol.Scope(ctx, t.Grant, func(held context.Context) error {\n		protocol.Release(context.WithoutCancel(ctx), t.Grant)",
			Test: "TestRunLeadsAgainAfterEachEndOfATerm/embedded|TestRunEndsWithItsContextAfterTheWorkIsOver",
		},
		{
			Name:    "election: the leader is read without a sync",
			File:    "protocol/front.go",
			Old:     "	found, err = persist(ctx, l.client, func(s *Session) (bool, error) {\n		if err := s.sync(ctx, s.Path(l.path)); err != nil {\n			return false, err\n		}",
			New:     "	found, err = persist(ctx, l.client, func(s *Session) (bool, error) {",
			Package: "./election",
			Test:    "TestLeaderIsNoOlderThanTheCall|TestElectionKeepsThePromisesOfALock",
		},

		// The barriers.
		{
			Name: "barrier: a removal hits any barrier",
			File: "barrier/barrier.go",
			Old:  "ops = append(ops, &zk.DeleteRequest{Path: node, Version: version})",
			New:  "ops = append(ops, &zk.DeleteRequest{Path: node, Version: -1})",
			Test: "TestLateRemovalDoesNotHitALaterBarrier",
		},
		{
			Name: "barrier: another barrier is waited at, too",
			File: "barrier/barrier.go",
			Old:  "return stat.Czxid != first // another",
			New:  "return false // another",
			Test: "TestWaiterNoticesThatTheBarrierIsAnotherOne",
		},
		{
			Name: "double barrier: who was counted withdraws",
			File: "doublebarrier/arrival.go",
			Old:  "failed := a.delete(life, a.node, 0)",
			New:  "failed := a.delete(life, a.node, -1)",
			Test: "TestEitherAllEnterOrNone/ctx_ends",
		},
		{
			Name: "double barrier: a gate opens for fewer",
			File: "doublebarrier/gate.go",
			Old:  "	if len(g.members) < b.n {",
			New:  "	if len(g.members) < b.n-1 {",
			Test: "TestStrangersAreIgnored/embedded",
		},
		{
			Name: "double barrier: a stale gate lets in",
			File: "doublebarrier/arrival.go",
			Old:  "			} else if len(left) > 0 {\n				a.full = g",
			New:  "			} else if len(left) >= 0 {\n				a.full = g",
			Test: "TestStaleGateIsRemovedByTheNext/embedded",
		},
		{
			Name: "double barrier: nobody looks after those who have died inside",
			File: "doublebarrier/gate.go",
			Old:  "	soon, cancel := context.WithTimeout(ctx, s.Timeout()/3)",
			New:  "	soon, cancel := context.WithTimeout(ctx, 99*s.Timeout())",
			Test: "TestNobodyIsStrandedWhenWhoeverLooksAfterTheRestDies|TestLeaversNoticeThatAllOthersHaveDied",
		},

		// The queue.
		{
			Name: "queue: a receipt is not read",
			File: "queue/receipt.go",
			Old:  "return zxid, number == strconv.FormatInt(one.number, 10), err",
			New:  "return zxid, number == strconv.FormatInt(-1, 10), err",
			Test: "TestFaultAtEachStep/embedded",
		},
		{
			Name: "queue: a receipt that is gone says that nothing happened",
			File: "queue/receipt.go",
			Old:  "case errors.Is(err, zk.ErrNoNode) && one.made:",
			New:  "case false:",
			Test: "TestReceiptsDeleted",
		},
		{
			Name: "queue: what was sent is taken back",
			File: "queue/desk.go",
			Old:  "	case !c.sent:\n		d.end(ended(c.ctx), c)",
			New:  "	case !c.sent || true:\n		d.end(ended(c.ctx), c)",
			Test: "TestGivingUpOnASlowNetwork|TestCancelledAtEachStep/embedded",
		},
		{
			Name: "queue: data that was read ahead is believed",
			File: "queue/take.go",
			Old:  "&zk.DeleteRequest{Path: node, Version: e.stat.Version}",
			New:  "&zk.DeleteRequest{Path: node, Version: -1}",
			Test: "TestReadAheadIsNotBelieved",
		},
		{
			Name: "queue: consumers draw the same numbers",
			File: "queue/turn.go",
			Old:  "number := t.base + stat.Version",
			New:  "number := t.base + stat.Version/2",
			Test: "TestRacingConsumersDoNotMeet/embedded",
		},
		{
			Name: "queue: what is left behind when turns begin is forgotten",
			File: "queue/turn.go",
			Old:  "		for _, e := range behind {\n			c.head.recall(e)\n		}",
			New:  "		_ = behind",
			Test: "TestWhatIsFarBehindIsFound/embedded",
		},
		{
			Name: "queue: nobody looks after those whose turn it was",
			File: "queue/turn.go",
			Old:  "		c.head.recall(e)\n	}\n	c.receipts.touch",
			New:  "	}\n	c.receipts.touch",
			Test: "TestWhoStopsAskingHoldsNobodyUp/3/embedded",
		},
		{
			Name: "queue: consumers that do not take turns go further than they may",
			File: "queue/turn.go",
			Old:  "s.rank++",
			New:  "s.rank += 4",
			Test: "TestOrderIsRelaxedByLessThanTheConsumers/./embedded",
		},
		{
			Name: "queue: what happens to the queue after a removal makes that doubtful",
			File: "protocol/recipe.go",
			Old:  "if v.watch.after >= zxid {",
			New:  "if v.watch.after > zxid+1<<20 {",
			Test: "TestSightTellsWhatWasThereAtATransaction/embedded",
		},
		{
			Name: "queue: what has happened to the queue before a removal is overlooked",
			File: "protocol/recipe.go",
			Old:  "if v.watch.after >= zxid {",
			New:  "if true {",
			Test: "TestSightTellsWhatWasThereAtATransaction/embedded",
		},
		{
			Name: "queue: another queue of the same name is taken from",
			File: "queue/take.go",
			Old:  "	if err == nil && !same {\n		err = errors.New(\"the queue was deleted",
			New:  "	if err == nil && !same && false {\n		err = errors.New(\"the queue was deleted",
			Test: "TestQueueMadeAnewAtEachStep|TestQueueMadeAnewIsAnotherQueue",
		},
		{
			Name: "queue: all who wait are woken",
			File: "queue/wait.go",
			Old:  "{ return max(self-watchers, -1) }",
			New:  "{ return -1 }",
			Test: "TestOfferWakesFew",
		},
		{
			Name: "queue: the bound is as of the last look",
			File: "queue/offer.go",
			Old:  "Data: p.data, Version: p.version}",
			New:  "Data: p.data, Version: -1}",
			Test: "TestMaxLengthIsExact",
		},
		{
			Name: "queue: numbers near the end are taken",
			File: "queue/offer.go",
			Old:  "exhausted := func() bool { return p.next+int64(len(first.items)) > lastSequence }",
			New:  "exhausted := func() bool { return false }",
			Test: "TestSequenceExhausted",
		},
	}...)
}
