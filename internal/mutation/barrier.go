package main

// The barrier.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name: "barrier: the node of another session is as good as one's own",
			File: "barrier/barrier.go",
			Old:  "if stat.EphemeralOwner == s.ID() {",
			New:  "if stat.EphemeralOwner != 0 {",
			Test: "TestBarrierThatIsSetAgainAfterARestartDoesNotFall|TestSetSaysThatTheBarrierFalls",
		},
		{
			Name: "barrier: a Set waits for a living session for ever",
			File: "barrier/barrier.go",
			Old:  "giveUp = time.Now().Add(2 * s.Timeout())",
			New:  "giveUp = time.Now().Add(2000 * s.Timeout())",
			Test: "TestSetSaysThatTheBarrierFalls",
		},
		{
			Name: "barrier: a removal without a seal is repeated blindly",
			File: "barrier/barrier.go",
			Old:  "	if len(seals) == 0 { // set",
			New:  "	if len(seals) < 0 { // set",
			Test: "TestRepeatedRemovalDoesNotHitALaterBarrierOfAnotherLibrary/embedded",
		},
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
			Name: "barrier: a removal believes a server that lags",
			File: "barrier/barrier.go",
			Old:  "	if err := s.Sync(ctx, b.path); err != nil {\n		return nil, err\n	}\n",
			New:  "",
			Test: "TestRemoveOnAServerThatLags",
		},
		{
			Name: "barrier: the mark of another removal that is gone is taken for the barrier",
			File: "barrier/barrier.go",
			Old:  "case errors.Is(err, zk.ErrNoNode) && len(marks) == 1:",
			New:  "case errors.Is(err, zk.ErrNoNode):",
			Test: "TestRemovalThatAnotherOneGaveUp",
		},
	}...)
}
