package main

// The barrier.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name: "barrier: the node of another session is as good as one's own",
			File: "barrier/barrier.go",
			Old:  "case stat.EphemeralOwner != s.ID():",
			New:  "case false:",
			Test: "TestBarrierThatIsSetAgainAfterARestartDoesNotFall|TestSetReportsThatTheBarrierFalls",
		},
		{
			Name: "barrier: a Set waits for a living session for ever",
			File: "barrier/barrier.go",
			Old:  "deadline = time.Now().Add(2 * s.Timeout())",
			New:  "deadline = time.Now().Add(2000 * s.Timeout())",
			Test: "TestSetReportsThatTheBarrierFalls",
		},
		{
			Name: "barrier: a removal without an ID node is repeated blindly",
			File: "barrier/removal.go",
			Old:  "	if len(ids) == 0 { // set",
			New:  "	if len(ids) < 0 { // set",
			Test: "TestRepeatedRemovalDoesNotHitALaterBarrierOfAnotherLibrary",
		},
		{
			Name: "barrier: a removal hits any barrier",
			File: "barrier/removal.go",
			Old:  "DeleteRequest{Path: r.barrier.recipe.Path(), Version: r.stat.Version})",
			New:  "DeleteRequest{Path: r.barrier.recipe.Path(), Version: -1})",
			Test: "TestLateRemovalDoesNotHitALaterBarrier",
		},
		{
			Name: "barrier: a wait goes on at a later barrier",
			File: "barrier/barrier.go",
			Old:  "if stat.Czxid != first { // another",
			New:  "if false { // another",
			Test: "TestWaiterNoticesThatTheBarrierIsAnotherOne",
		},
		{
			Name: "barrier: a waiter asks the server every minute",
			File: "barrier/barrier.go",
			Old:  "s.WaitAny(ctx, w)",
			New:  "w.Wait(ctx)",
			Test: "TestWaiterSendsNothing",
		},
		{
			Name: "barrier: a removal believes a server that lags",
			File: "barrier/removal.go",
			Old:  "	if err := s.Sync(ctx, b.recipe.Path()); err != nil {\n		return nil, err\n	}\n",
			New:  "",
			Test: "TestRemoveOnAServerThatLags",
		},
		{
			Name: "barrier: the marker of another removal that is gone is taken for the barrier",
			File: "barrier/removal.go",
			Old:  "if errors.Is(err, zk.ErrNoNode) && len(markers) == 1 {",
			New:  "if errors.Is(err, zk.ErrNoNode) {",
			Test: "TestRemovalThatAnotherOneGaveUp",
		},
		{
			Name: "barrier: a marker that an operator has deleted counts as a removal",
			File: "barrier/removal.go",
			Old:  "stat.Czxid == r.stat.Czxid {",
			New:  "stat.Czxid < r.stat.Czxid {",
			Test: "TestRemovalWhoseMarkerIsDeleted",
		},
	}...)
}
