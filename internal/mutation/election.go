package main

// The election.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name: "election: a loss at the end of Run is not reported",
			File: "election/election.go",
			Old:  "return errors.Join(failed, done)\n	}",
			New:  "return failed\n	}",
			Test: "TestRunReportsALossAtItsEnd",
		},
		{
			Name: "election: a term that has ended still leads",
			File: "election/election.go",
			Old:  "if t == nil || t.Err() != nil {",
			New:  "if t == nil {",
			Test: "TestLeadingIsTheTermThatThisElectionHolds",
		},
		{
			Name:    "election: a Proclaim is written again when its answer was lost",
			File:    "protocol/setdata.go",
			Old:     "done, err = g.wasSet(ctx, data, stat.Version)",
			New:     "_, err = g.wasSet(ctx, data, stat.Version)",
			Package: "./election",
			Test:    "TestProclaimWithTheConnectionCutAtAnyPacket/embedded|TestProclaimTakesEffectOnce/embedded",
		},
		{
			Name:    "election: a Proclaim that was not executed counts as done",
			File:    "protocol/setdata.go",
			Old:     "err != nil || now.stat.Version == version:\n\t\treturn false, err",
			New:     "err != nil || now.stat.Version == version:\n\t\treturn true, err",
			Package: "./election",
			Test:    "TestProclaimWithTheConnectionCutAtAnyPacket/embedded",
		},
		{
			Name: "election: the node is given up before the work is over",
			File: "election/election.go",
			Old:  "done := protocol.RunHeld(ctx, t.grant, func(held context.Context) error {",
			New:  "done := protocol.RunHeld(ctx, t.grant, func(held context.Context) error {\n\t\tt.grant.Release(context.WithoutCancel(ctx))",
			Test: "TestRunLeadsAgainAfterEachEndOfATerm/embedded|TestRunEndsWithItsContextAfterLeadHasReturned",
		},
		{
			Name: "election: the leader is read without a sync",
			File: "election/observe.go",
			Func: "(*Election).first",
			Old:  "\tif err := s.Sync(ctx, e.recipe.Path()); err != nil {\n\t\treturn Leader{}, err\n\t}\n",
			New:  "",
			Test: "TestLeaderIsNoOlderThanTheCall|TestElectionIsAFairLock",
		},
		{
			Name: "election: a candidate that comes before the watch on the line is overlooked",
			File: "election/feed.go",
			Old:  "line.Among(w.Children()); len(names) > 0 {",
			New:  "line.Among(w.Children()); len(names) > 1000 {",
			Test: "TestObserve",
		},
		{
			Name: "election: a new observer is told what its server knew before",
			File: "election/feed.go",
			Old:  "if err != nil || reached >= number {",
			New:  "if err != nil || reached > 0 {",
			Test: "TestNewObserverDoesNotYieldAnEarlierLeader",
		},
		{
			Name: "election: a foreign name of an old listing is trusted",
			File: "election/feed.go",
			Old:  "if i > 0 && n.Owner == (protocol.Owner{}) {",
			New:  "if false && n.Owner == (protocol.Owner{}) {",
			Test: "TestObserverDoesNotTrustAForeignNameThatComesAgain",
		},
		{
			Name: "election: a listing that has missed its event is read over and over",
			File: "election/feed.go",
			Old:  "func(n line.Name) bool { return n.Node == f.gone }",
			New:  "func(line.Name) bool { return false }",
			Test: "TestObserverOfAForgetfulServerSeesAVacancy",
		},
		{
			Name: "election: the successor of a leader that has led for long is not known",
			File: "election/feed.go",
			Old:  "case due && len(names) == 1 && !f.listed:",
			New:  "case false:",
			Test: "TestObserverFindsOutWhoIsNext",
		},
		{
			Name: "election: the line is watched each time that it is listed",
			File: "election/feed.go",
			Old:  "case f.more:",
			New:  "case false:",
			Test: "TestObserverFollowsALongLine",
		},
		{
			Name: "election: a feed goes on without observers",
			File: "election/feed.go",
			Old:  "if f.observers--; f.observers == 0 {",
			New:  "if f.observers--; f.observers < 0 {",
			Test: "TestAThousandObserversOfAClientCostWhatOneCosts",
		},
	}...)
}
